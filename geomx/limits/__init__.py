"""Limits on the time and memory of plugins' code, and the watchdog that enforces them."""
