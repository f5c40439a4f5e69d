"""Trainings in several processes: their speed, and the bytes that they exchange."""
