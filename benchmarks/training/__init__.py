"""Whole trainings: their speed, their score, and where their time goes."""
