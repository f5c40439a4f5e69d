"""Collectors and evaluators."""
