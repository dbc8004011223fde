"""The version of geomx, which is also that of the installed package."""

__version__ = "0.1.0"
