"""Conversion of command-line overrides to an experiment: composition by Hydra, and its errors."""
