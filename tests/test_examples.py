"""The training scripts in examples/, by the commands in their docstrings, for one epoch or five."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from geomx.errors import ConfigError
from geomx.frameworks.mxnet_loader import load_mxnet

pytestmark = pytest.mark.slow

try:
    load_mxnet()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LINE = re.compile(r"\[Time \d+\.\d{3}\]\[Epoch \d+\]\[Iteration (\d+)\] Test Acc (0\.\d{4})")


def commands(name: str) -> list[list[str]]:
    """Return the arguments of ``geomx`` in every command that a script documents."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    found = re.findall(r"^    geomx (launch .*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in found]


@pytest.mark.parametrize(
    ("name", "number", "numbers", "epochs"),
    [
        ("cnn", 0, 1, 1), ("cnn", 2, 1, 5), ("cnn_mpq", 0, 1, 1), ("cnn_hfa", 0, 5, 2),
        ("cnn_esync", 0, 1, 1),
    ],
)  # fmt: skip
def test_documented_commands_of_examples_run(
    tmp_path: Path, name: str, number: int, numbers: int, epochs: int
) -> None:
    words = commands(name)[number]
    script = words.index("--")
    words[script + 2] = str(EXAMPLES / f"{name}.py")
    command = [*words[:script], "emulate=none", *words[script:]]
    command += ["-ep", str(epochs), "--data", "nowhere"]
    command[command.index("python")] = sys.executable
    program = "import sys; from geomx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Start training on 4 workers, my rank is 0."
    title = next(number for number, line in enumerate(lines) if f"{name}.py on" in line)
    logged = [LINE.fullmatch(line) for line in lines[1:title]]
    assert all(logged), done.stdout
    first, last = logged[0], logged[-1]
    assert first is not None
    assert last is not None
    assert int(first[1]) == numbers
    assert float(last[2]) > 0.2


@pytest.mark.parametrize("name", ["cnn", "cnn_bsc", "cnn_fp16", "cnn_mpq", "cnn_hfa", "cnn_esync"])
def test_examples_are_short_and_document_a_command(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 50
    assert commands(name)
