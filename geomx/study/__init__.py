"""Studies: one experiment in several variants, compared; see `geomx.study.variants`."""

from geomx.study.variants import run

__all__ = ["run"]
