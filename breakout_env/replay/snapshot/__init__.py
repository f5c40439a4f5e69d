"""A replay memory as a file."""
