"""One environment: its speed beside the emulator and other preprocessing."""
