"""What knows nothing of Breakout or DI-engine's pipelines."""
