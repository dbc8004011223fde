"""The way of a newcomer to plugins of every kind, command by command, in a new virtual environment.

A clone of this checkout is installed by pip into a new environment, `geomx new-plugin` writes a
project of every kind, the example projects are added, and then every command of every project's
README is run in order, and its own tests. Misbehaving plugins come last:

    python benchmarks/plugins/walk.py FOLDER               # writes results/plugins.md
    python benchmarks/plugins/walk.py FOLDER codec pings   # these alone, once more

It needs only Python and git, and tests what is committed. FOLDER is kept with a record of every
command, so that an interrupted walk resumes at its last project; a new FOLDER starts from scratch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "plugins.md"
KINDS = ("codec", "slicer", "sync", "placement", "overlay", "optimizer", "workload", "network")
EXAMPLES = ("signsgd", "lowrank", "outer", "eightbit", "pings", "kinds")
MISBEHAVING = "misbehaving"
LIMIT_S = 1800
OUTER = "outer"  # in its sweep: accurate within a point of the baseline, with 1/50 of its bytes


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        project: Project in which it was run.
        command: The command.
        seconds: Its duration.
        status: Exit status; None if it timed out.
        output: The end of its output.
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
    """A folder with an environment, a clone and projects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.projects = self.folder / "projects"
        self._notes = self.folder / "steps.jsonl"
        lines = self._notes.read_text(encoding="utf-8").splitlines() if self._notes.exists() else []
        self.steps = [Step(**json.loads(line)) for line in lines]
        environment = {
            k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")
        }
        binaries = str(self.folder / "venv" / "bin")
        self._environment = environment | {
            "PATH": os.pathsep.join([binaries, environment.get("PATH", "")]),
            "COLUMNS": "100",
        }

    def type(self, project: str, command: str, where: Path) -> bool:
        """Run one command; return whether it succeeded."""
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
        step = Step(project, command, time.monotonic() - began, status, output[-4000:])
        self.steps.append(step)
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(step)) + "\n")
        verdict = "ok" if status == 0 else f"FAILED ({status})"
        print(f"{step.seconds:7.1f} s  {verdict:<12} {project}: {command}", flush=True)
        if status != 0:
            print(step.output, flush=True)
        return status == 0

    def install(self) -> bool:
        """Create the environment with geomx, unless it exists."""
        if (self.folder / "venv").exists():
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        return (
            self.type("geomx", f"{sys.executable} -m venv venv", self.folder)
            and self.type("geomx", f"git clone -q {ROOT} geomx", self.folder)
            and self.type("geomx", "pip install -q . pytest hypothesis", self.folder / "geomx")
        )

    def forget(self, name: str) -> None:
        """Restart a project."""
        self.steps = [step for step in self.steps if step.project != name]
        lines = [json.dumps(asdict(step)) + "\n" for step in self.steps]
        self._notes.write_text("".join(lines), encoding="utf-8")
        shutil.rmtree(self.home(name), ignore_errors=True)

    def home(self, name: str) -> Path:
        """Return the folder of a project."""
        return self.projects / (f"geomx-mine-{name}" if name in KINDS else f"geomx-{name}")

    def project(self, name: str) -> None:
        """Run every command of a project's README, and its tests."""
        home = self.home(name)
        if name == MISBEHAVING:
            home.mkdir()
            self.type(name, f"cp -r {self.folder / 'geomx' / 'tests'} tests", home)
            self.type(name, f"python -m pytest tests/test_{name}.py", home)
            return
        if name in KINDS:
            made = self.type(name, f"geomx new-plugin mine_{name} --kind {name}", self.projects)
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
    """Yield the indented lines of a README, without comments and lines that need a FILE."""
    for line in readme.read_text(encoding="utf-8").splitlines():
        command = line.split("  #")[0].strip()
        if line.startswith("    ") and command and "FILE" not in command:
            yield command


def compared(home: Path) -> list[dict[str, Any]]:
    """Return the variants of a project's last sweep, the built-in one first."""
    sweeps = sorted(home.glob("*/*/*/study.json"))
    return json.loads(sweeps[-1].read_text(encoding="utf-8"))["variants"] if sweeps else []


def outer_promise(walk: Walk) -> str | None:
    """Return what is wrong with the accuracy and the bytes of `OUTER`, or None."""
    variants = compared(walk.home(OUTER))
    if len(variants) != 2 or any(variant["status"] != "done" for variant in variants):
        return f"{OUTER} has not been compared"
    ours = variants[1]
    lost = variants[0]["figures"]["accuracy"] - ours["figures"]["accuracy"]
    share = ours["against_baseline"]["wan_bytes"]
    if lost > 0.01 or abs(50 * share - 1) > 0.01:
        return f"{OUTER}: {100 * lost:.1f} points of accuracy lost, {share:.4f} of the bytes"
    return None


def sweeps(walk: Walk) -> Iterator[str]:
    """Yield the lines of a table that compares every project's plugin with built-in ones."""
    yield "| project | variant | time per iteration | bytes over the WAN | accuracy |"
    yield "|---|---|---:|---:|---:|"
    for name in (*KINDS, *EXAMPLES):
        for variant in compared(walk.home(name)):
            figures = variant["figures"]
            if variant["status"] == "done":
                shown = f"{1000 * figures['seconds_per_iteration']:.1f} ms"
                shown += f" | {figures['wan_bytes']:,} | {figures['accuracy']:.3f}"
            else:
                shown = f"{variant['status']}: {variant['reason']} | |"
            yield f"| {name} | {variant['name']} | {shown} |"


def page(walk: Walk) -> str:
    """Return the commands and their results as Markdown."""
    wrong = [step for step in walk.steps if step.status != 0]
    promise = outer_promise(walk)
    lines = [
        "# A walk through plugins",
        "",
        "Written by `benchmarks/plugins/walk.py`: every command of every new project's and every",
        f"example's README, in a fresh virtual environment (Python {platform.python_version()},",
        f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}).",
        f"{len(walk.steps) - len(wrong)} of {len(walk.steps)} commands ended well.",
        f"`{OUTER}`, rounds of 50 steps, is to be as accurate as full synchrony within one point",
        f"for 1/50 of the bytes: {promise or 'so it was'}.",
        "",
        "| project | command | seconds | it ended |",
        "|---|---|---:|---|",
    ]
    for step in walk.steps:
        command = step.command.replace(str(walk.folder), "FOLDER").replace(str(ROOT), "CHECKOUT")
        ended = "well" if step.status == 0 else f"with {step.status}: {step.last}"
        shown = command.replace(sys.executable, "python3").replace("|", "\\|")
        lines.append(f"| {step.project} | `{shown}` | {step.seconds:.1f} | {ended} |")
    lines += ["", "What the sweeps found, simulated:", "", *sweeps(walk)]
    return "\n".join([*lines, ""])


def main() -> int:
    """Walk; return the exit status."""
    everything = (*KINDS, *EXAMPLES, MISBEHAVING)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the walk is, or goes on")
    parser.add_argument("again", nargs="*", metavar="project", help=", ".join(everything))
    words = parser.parse_args()
    for word in words.again:
        if word not in everything:
            parser.error(f"no project {word!r}; there are {', '.join(everything)}")
    walk = Walk(words.folder)
    if not walk.install():
        return 1
    walk.projects.mkdir(exist_ok=True)
    begun = list(dict.fromkeys(step.project for step in walk.steps))
    for name in words.again or everything:
        if name in begun and name != begun[-1] and not words.again:
            continue  # done by an earlier walk
        walk.forget(name)
        walk.project(name)
    if not words.again:
        RESULTS.write_text(page(walk), encoding="utf-8")
    wrong = any(step.status != 0 for step in walk.steps)
    return int(wrong or (not words.again and outer_promise(walk) is not None))


if __name__ == "__main__":
    sys.exit(main())
