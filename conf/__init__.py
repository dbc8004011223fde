"""Configuration files: networks, workloads and experiments that are known by name.

Options themselves are dataclasses (`geomx.options.schema`, and each plugin's own); files here only
compose them. This package holds no code.
"""
