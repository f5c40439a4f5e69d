"""Replay buffers: what a transition costs in memory, and a batch in time."""
