"""The ``geomx`` command: one module for each group of commands; `main` dispatches to them."""
