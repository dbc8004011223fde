"""What people read in a terminal: numbers with units, lines and tables, progress bars."""
