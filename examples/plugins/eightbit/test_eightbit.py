"""The C++ codec satisfies the same laws as one in Python."""

from geomx.testing import check_plugin


def test_laws() -> None:
    check_plugin("eightbit")
