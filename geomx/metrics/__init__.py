"""Figures of a running live job for Prometheus and ``geomx top``."""
