"""Experiment trackers that follow a run."""
