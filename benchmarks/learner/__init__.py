"""Learners: updates a second."""
