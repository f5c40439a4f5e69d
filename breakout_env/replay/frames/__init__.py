"""Where the frames of a replay memory lie: each distinct one once."""
