"""One experiment as data: built from configuration, checked, and translated for the core."""
