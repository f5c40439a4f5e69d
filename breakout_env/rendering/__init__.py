"""Videos and the window."""
