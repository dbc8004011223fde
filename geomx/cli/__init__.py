"""The ``geomx`` command: one module per group of commands; `main` dispatches to them."""
