"""Comparison of all installed accelerators on one network; draws the picture in README.

    python examples/compare_accelerators.py                # docs/compare_accelerators.svg
    python examples/compare_accelerators.py network=five_regions seed=3

The same as ``python -m geomx experiment=accelerators`` with the given overrides, except for the
location of the picture.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from geomx import study

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "compare_accelerators.svg"


def main() -> None:
    """Run the study and copy its picture."""
    comparison = study.run(["experiment=accelerators", *sys.argv[1:]])
    shutil.copyfile(comparison.directory / "chart.svg", PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
