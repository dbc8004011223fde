"""What people look at after a run: HTML pages, charts and drawings."""
