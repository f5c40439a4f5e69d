"""Helpers that do not depend on Breakout or DI-engine's pipelines."""
