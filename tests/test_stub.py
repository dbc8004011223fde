"""geomx/_core.pyi, the stub of the compiled core, is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent.parent / "geomx" / "_core.pyi"


def test_the_stub_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "geomx._core", "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    remedy = "run: python -m nanobind.stubgen -m geomx._core -o geomx/_core.pyi"
    assert made.read_text() == STUB.read_text(), remedy
