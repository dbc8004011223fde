"""Count how many planted bugs of the protocol the fault harness finds.

Each mutation (planted.txt) changes one place of the C++ core, in a copy of the sources;
`geomx_faults` is built from it and tries seeds until one breaks a law::

    python benchmarks/faults/mutations.py --seeds 10000 --out benchmarks/faults/mutations.csv

Needs CMake, Ninja and a C++ compiler. Only the files that a mutation changes are compiled again;
with ccache a second run compiles almost nothing. One row per mutation: its name, whether it was
found, the first seed that shows it, the law that it breaks, and the seconds of the search. A search
that takes ten times as long as without a bug counts as found: some step never ends. The file
is written after every mutation, and those that are in it are not tried again; with `--missed`,
those that were not found are. With `--tree`, the copy is kept for the next run.
"""

from __future__ import annotations

import argparse
import csv
import filecmp
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = ("mutation", "found", "seed", "law", "search_s")
TRIED_FIRST = 1000
"""Number of seeds that are tried without a bug, which tells how fast this machine is."""
TOO_LONG = 10
"""A search never ends if it takes this multiple of the time that it takes without a bug."""
PROJECT = """# The program alone, without the drivers of live and simulated runs; file by file.
cmake_minimum_required(VERSION 3.20)
project(mutations LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
find_package(Threads REQUIRED)
file(GLOB sources runtime_cpp/core/*.cc runtime_cpp/core/optimizers/*.cc runtime_cpp/kernels/*.cc
     runtime_cpp/net/*.cc runtime_cpp/faults/*.cc plugins/*/*.cc)
list(FILTER sources EXCLUDE REGEX "_test\\\\.cc$")
foreach(name cuda/absent wire cluster carriers layout)
  file(GLOB found runtime_cpp/kernels/${name}.cc runtime_cpp/tests/${name}.cc)
  list(APPEND sources ${found})
endforeach()
add_executable(geomx_faults ${sources})
target_include_directories(geomx_faults PRIVATE runtime_cpp)
target_link_libraries(geomx_faults PRIVATE Threads::Threads)
"""


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
    """Copy what the program is built from, except for what the copy has already."""

    def update(source: str, copied: str) -> None:
        if not Path(copied).exists() or not filecmp.cmp(source, copied, shallow=False):
            shutil.copy(source, copied)

    for name in ("runtime_cpp", "plugins"):
        shutil.copytree(ROOT / name, target / name, copy_function=update, dirs_exist_ok=True)
    (target / "CMakeLists.txt").write_text(PROJECT)


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
    """Prepare the build, and compile all."""
    switches = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"]
    if shutil.which("ccache"):
        switches.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    status, output = run("cmake", "-S", tree, "-B", tree / "build/faults", "-G", "Ninja", *switches)
    if status == 0:
        status, output = build(tree)
    if status != 0:
        sys.exit(output[-3000:])


def search(tree: Path, seeds: int, seconds: float = 3600) -> tuple[int, str, float]:
    """Try seeds until one breaks a law; return exit status, output and the seconds that it took."""
    program = tree / "build/faults/geomx_faults"
    began = time.monotonic()
    status, output = run(program, "--seeds", str(seeds), "--until-broken", seconds=seconds)
    return status, output, time.monotonic() - began


def longest_s(tree: Path, seeds: int) -> float:
    """Return the time after which a search of so many seeds counts as one that never ends."""
    status, output, took_s = search(tree, TRIED_FIRST)
    if status != 0:
        sys.exit(f"a law breaks without any bug:\n{output[-3000:]}")
    return TOO_LONG * took_s * max(seeds, TRIED_FIRST) / TRIED_FIRST


def attempt(tree: Path, mutation: Mutation, seeds: int, seconds: float) -> dict[str, str]:
    """Plant a mutation, try seeds for at most so many seconds, and remove it."""
    path = tree / "runtime_cpp" / mutation.file
    before = path.read_text()
    path.write_text(mutation.planted(before))
    try:
        status, output = build(tree)
        if status != 0:
            sys.exit(f"{mutation.name} does not compile:\n{output[-3000:]}")
        status, output, took_s = search(tree, seeds, seconds)
    finally:
        path.write_text(before)
    row = {
        "mutation": mutation.name,
        "found": "no" if status == 0 else "yes",
        "seed": "",
        "law": "",
        "search_s": f"{took_s:.1f}",
    }
    if broken := re.search(r"seed (\d+) breaks a law: (.*)", output):
        row |= {"seed": broken[1], "law": broken[2][:100]}
    elif status != 0:
        row["law"] = "it never ends" if status == 124 else f"it ends with status {status}"
    return row


def read_rows(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of earlier runs by mutation, without those that are not planted any more."""
    if not path.exists():
        return {}
    planted = {mutation.name for mutation in read_planted()}
    with path.open() as file:
        return {row["mutation"]: row for row in csv.DictReader(file) if row["mutation"] in planted}


def write_rows(path: Path, rows: dict[str, dict[str, str]]) -> None:
    """Write the rows in the order in which the bugs are listed."""
    order = [mutation.name for mutation in read_planted()]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in order if name in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10_000, help="tried per mutation")
    parser.add_argument("--out", type=Path, default=Path("mutations.csv"), help="the rows")
    parser.add_argument("--tree", type=Path, help="where the copy is; kept if given")
    parser.add_argument("--missed", action="store_true", help="try those again that were not found")
    arguments = parser.parse_args()
    rows = read_rows(arguments.out)
    with tempfile.TemporaryDirectory() as temporary:
        tree = arguments.tree or Path(temporary) / "tree"
        copy(tree)
        configure(tree)
        seconds = longest_s(tree, arguments.seeds)
        for mutation in read_planted():
            known = rows.get(mutation.name)
            if known and (known["found"] == "yes" or not arguments.missed):
                continue
            rows[mutation.name] = attempt(tree, mutation, arguments.seeds, seconds)
            print(*rows[mutation.name].values(), sep="; ", flush=True)
            write_rows(arguments.out, rows)
    write_rows(arguments.out, rows)
    found = sum(row["found"] == "yes" for row in rows.values())
    print(f"{found} of {len(rows)} mutations found")


if __name__ == "__main__":
    main()
