"""Count how many planted bugs of the protocol the fault harness finds.

Each mutation changes one place of the C++ core, in a copy of the sources; `geomx_faults` is built
from it and tries seeds until one breaks a law::

    python benchmarks/faults/mutations.py --seeds 10000 --out benchmarks/faults/mutations.csv

Needs CMake, Ninja and a C++ compiler; with ccache a second run compiles almost nothing. One row per
mutation: its name, whether it was found, the first seed that shows it, and the law that it breaks.
The file is written after every mutation, and those that are in it are not tried again.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = ("mutation", "found", "seed", "law")
TOO_LONG_S = 900


@dataclass
class Mutation:
    """A bug to plant.

    Attributes:
        name: What it does wrong.
        file: Where, below ``runtime_cpp``.
        before: What stands there, once.
        after: What takes its place.
    """

    name: str
    file: str = ""
    before: str = ""
    after: str = ""

    def planted(self, source: str) -> str:
        """Return the source with the bug; raise ValueError if it does not fit."""
        if source.count(self.before) != 1:
            raise ValueError(f"{self.name}: {source.count(self.before)} places in {self.file}")
        return source.replace(self.before, self.after)


def read_planted() -> list[Mutation]:
    """Read the bugs that are to be planted."""
    mutations: list[Mutation] = []
    for line in (Path(__file__).parent / "planted.txt").read_text().splitlines():
        if line.startswith("bug: "):
            mutations.append(Mutation(line.removeprefix("bug: ")))
        elif line.startswith("file: "):
            mutations[-1].file = line.removeprefix("file: ")
        elif line.startswith("-"):
            mutations[-1].before += ("\n" if mutations[-1].before else "") + line[1:]
        elif line.startswith("+"):
            mutations[-1].after += ("\n" if mutations[-1].after else "") + line[1:]
    return mutations


def copy(target: Path) -> None:
    """Copy what the program is built from."""
    for name in ("runtime_cpp", "plugins", "cmake", "geomx/include", "benchmarks/gpu"):
        shutil.copytree(ROOT / name, target / name)
    shutil.copy2(ROOT / "CMakeLists.txt", target)


def run(*words: str | Path, seconds: float = 3600) -> tuple[int, str]:
    """Run a command; return its exit status (124: it took too long) and its output."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout


def build(tree: Path) -> tuple[int, str]:
    """Compile the program."""
    folder = tree / "build/faults"
    return run("cmake", "--build", folder, "--target", "geomx_faults", "--parallel", "2")


def configure(tree: Path) -> None:
    """Prepare a build whose files are compiled one by one, and compile all."""
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    switches.append("-DCMAKE_UNITY_BUILD=OFF")
    if shutil.which("ccache"):
        switches.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    status, output = run("cmake", "-S", tree, "-B", tree / "build/faults", "-G", "Ninja", *switches)
    if status == 0:
        status, output = build(tree)
    if status != 0:
        sys.exit(output[-3000:])


def attempt(tree: Path, mutation: Mutation, seeds: int) -> dict[str, str]:
    """Plant a mutation, try seeds, and remove it."""
    path = tree / "runtime_cpp" / mutation.file
    before = path.read_text()
    path.write_text(mutation.planted(before))
    try:
        status, output = build(tree)
        if status != 0:
            sys.exit(f"{mutation.name} does not compile:\n{output[-3000:]}")
        program = tree / "build/faults/runtime_cpp/geomx_faults"
        status, output = run(program, "--seeds", str(seeds), "--until-broken", seconds=TOO_LONG_S)
    finally:
        path.write_text(before)
    row = {
        "mutation": mutation.name,
        "found": "no" if status == 0 else "yes",
        "seed": "",
        "law": "",
    }
    if broken := re.search(r"seed (\d+) breaks a law: (.*)", output):
        row |= {"seed": broken[1], "law": broken[2][:100]}
    elif status != 0:
        row["law"] = "it never ends" if status == 124 else f"it ends with status {status}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10_000, help="tried per mutation")
    parser.add_argument("--out", type=Path, default=Path("mutations.csv"), help="the rows")
    parser.add_argument("--tree", type=Path, help="where the copy is; kept if given")
    arguments = parser.parse_args()
    rows = list(csv.DictReader(arguments.out.open())) if arguments.out.exists() else []
    known = {row["mutation"] for row in rows}
    with tempfile.TemporaryDirectory() as temporary:
        tree = arguments.tree or Path(temporary) / "tree"
        if not tree.exists():
            copy(tree)
        configure(tree)
        for mutation in read_planted():
            if mutation.name in known:
                continue
            rows.append(attempt(tree, mutation, arguments.seeds))
            print(*rows[-1].values(), sep="; ", flush=True)
            with arguments.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    found = sum(row["found"] == "yes" for row in rows)
    print(f"{found} of {len(rows)} mutations found")


if __name__ == "__main__":
    main()
