"""The version, in one place: setup.py reads it from this file."""

__version__ = '0.1.0'
