"""The version of geomx, which is also that of the installed package."""

__version__ = "0.1.0"

SUMMARY_SCHEMA = 1
"""The version of ``summary.json`` and the tables beside it; another one cannot be read."""
