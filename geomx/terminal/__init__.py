"""Output on terminals: numbers with units, lines and tables, progress bars."""
