"""One small plugin of each kind that no project beside this one is about, each in a module."""
