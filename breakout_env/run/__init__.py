"""One training run: its config, folder, log, progress, saves and end."""
