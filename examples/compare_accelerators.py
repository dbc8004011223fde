"""Which accelerator helps here? Every one that is installed, on one network: README's picture.

    python examples/compare_accelerators.py                # docs/compare_accelerators.svg
    python examples/compare_accelerators.py network=five_regions seed=3

The same as ``python -m geomx experiment=accelerators``, whose words it passes on, but for where the
picture goes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from geomx import study

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "compare_accelerators.svg"


def main() -> None:
    """Run the study and keep its picture."""
    comparison = study.run(["experiment=accelerators", *sys.argv[1:]])
    shutil.copyfile(comparison.directory / "chart.svg", PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
