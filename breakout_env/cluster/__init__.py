"""A run on several processes that update together."""
