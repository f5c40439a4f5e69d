"""The environment: emulator, preprocessing, options and DI-engine's contract."""
