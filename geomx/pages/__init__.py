"""HTML pages, charts and drawings of finished runs."""
