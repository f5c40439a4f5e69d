"""Collectors and evaluators of a run as Ray actors, on this machine or on many."""
