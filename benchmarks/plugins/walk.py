"""From nothing to plugins of every kind: what a newcomer types, in a fresh virtual environment.

A clone of this checkout is installed by pip into a new environment, `geomx new-plugin` writes a
project of every kind, the example projects come along, and then every command of every project's
README is run in order, beside its own tests:

    python benchmarks/plugins/walk.py FOLDER               # writes results/plugins.md
    python benchmarks/plugins/walk.py FOLDER codec pings   # these alone, and nothing is written

It needs nothing but Python and git. What is committed is what is tried. FOLDER is kept, so that a
second walk finds the environment there; with a new FOLDER all begins anew.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "plugins.md"
KINDS = ("codec", "slicer", "sync", "placement", "overlay", "optimizer", "workload", "network")
EXAMPLES = ("signsgd", "powersgd", "diloco", "eightbit", "pings")
LIMIT_S = 1800


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        project: Where it was typed.
        command: What was typed.
        seconds: What it took.
        status: Exit status; None where it had to be ended.
        output: What it said.
    """

    project: str
    command: str
    seconds: float
    status: int | None
    output: str

    @property
    def last(self) -> str:
        """The last line that it said."""
        return ([line.strip() for line in self.output.splitlines() if line.strip()] or [""])[-1]


class Walk:
    """A folder with an environment, a clone and projects in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.projects = self.folder / "projects"
        self.steps: list[Step] = []
        environment = {
            k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")
        }
        binaries = str(self.folder / "venv" / "bin")
        self._environment = environment | {
            "PATH": os.pathsep.join([binaries, environment.get("PATH", "")]),
            "COLUMNS": "100",
        }

    def type(self, project: str, command: str, where: Path) -> bool:
        """Run one command; whether it ended well."""
        began = time.monotonic()
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                check=False,
                cwd=where,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
            )
            status, output = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            status, output = None, (late.stdout or b"").decode(errors="replace")
        step = Step(project, command, time.monotonic() - began, status, output)
        self.steps.append(step)
        verdict = "ok" if status == 0 else f"FAILED ({status})"
        print(f"{step.seconds:7.1f} s  {verdict:<12} {project}: {command}", flush=True)
        if status != 0:
            print(output[-4000:], flush=True)
        return status == 0

    def install(self) -> bool:
        """The environment with geomx, unless it is there."""
        if (self.folder / "venv").exists():
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        return (
            self.type("geomx", f"{sys.executable} -m venv venv", self.folder)
            and self.type("geomx", f"git clone -q {ROOT} geomx", self.folder)
            and self.type("geomx", "pip install -q . pytest", self.folder / "geomx")
        )

    def project(self, name: str) -> None:
        """Every command of a project's README, and its tests."""
        home = self.projects / f"geomx-{name}"
        if name in KINDS:
            made = self.type(name, f"geomx new-plugin mine_{name} --kind {name}", self.projects)
            home = self.projects / f"geomx-mine-{name}"
            if not made:
                return
        else:
            source = self.folder / "geomx" / "examples" / "plugins" / name
            self.type(name, f"cp -r {source} {home}", self.projects)
        for command in commands(home / "README.md"):
            self.type(name, command, home)
        if not any(step.command == "pytest" for step in self.steps if step.project == name):
            self.type(name, "pytest", home)


def commands(readme: Path) -> Iterator[str]:
    """The indented lines of a README, without comments and without those that lack a FILE."""
    for line in readme.read_text(encoding="utf-8").splitlines():
        command = line.split("  #")[0].strip()
        if line.startswith("    ") and command and "FILE" not in command:
            yield command


def page(walk: Walk) -> str:
    """What was typed and what came of it."""
    wrong = [step for step in walk.steps if step.status != 0]
    lines = [
        "# A walk through plugins",
        "",
        "Written by `benchmarks/plugins/walk.py`: every command of every new project's and every",
        f"example's README, in a fresh virtual environment (Python {platform.python_version()},",
        f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}).",
        f"{len(walk.steps) - len(wrong)} of {len(walk.steps)} ended well.",
        "",
        "| project | command | seconds | it ended |",
        "|---|---|---:|---|",
    ]
    for step in walk.steps:
        command = step.command.replace(str(walk.folder), "FOLDER").replace(str(ROOT), "CHECKOUT")
        ended = "well" if step.status == 0 else f"with {step.status}: {step.last}"
        shown = command.replace(sys.executable, "python3").replace("|", "\\|")
        lines.append(f"| {step.project} | `{shown}` | {step.seconds:.1f} | {ended} |")
    return "\n".join([*lines, ""])


def main(words: list[str]) -> int:
    """Walk; the exit status says whether all ended well."""
    if not words or any(word not in (*KINDS, *EXAMPLES) for word in words[1:]):
        print(__doc__)
        return 2
    walk = Walk(Path(words[0]))
    if not walk.install():
        return 1
    walk.projects.mkdir(exist_ok=True)
    for name in words[1:] or (*KINDS, *EXAMPLES):
        walk.project(name)
    if not words[1:]:
        RESULTS.write_text(page(walk), encoding="utf-8")
    return int(any(step.status != 0 for step in walk.steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
