"""One small plugin of each kind that the neighbouring projects do not cover, one per module."""
