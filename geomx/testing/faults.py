"""Run the C++ core under drawn faults: ``python -m geomx.testing.faults --seeds 10000``.

Compiles ``geomx_faults`` (docs/faults_tests.md) in ``build/faults`` of the checkout that
``pip install -e .`` installed, and runs it with the same arguments and exit status. Other
installations do not have it, because it consists of the sources of the core that it tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_SOURCES = (
    "geomx.testing.faults compiles the C++ sources of geomx, and {root} does not contain them: "
    "clone the repository, run `pip install -e .` in it, and repeat the command"
)
NO_CMAKE = "geomx.testing.faults needs CMake: pip install cmake ninja"


def find_tool(name: str) -> str | None:
    """Return the path of a program of this environment or the search path; None: there is none."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def run(*words: str | Path) -> None:
    """Run a step of the build; its output is printed only if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\n{words[0]} exited with {done.returncode}")


def build(root: Path, folder: Path) -> Path:
    """Compile ``geomx_faults``; what has not changed since the last time is kept.

    Args:
        root: A checkout of the sources.
        folder: Build folder of CMake.

    Returns:
        The program.

    Raises:
        SystemExit: No sources, no CMake, or an error of the compiler.
    """
    if not (root / "runtime_cpp/faults").is_dir():
        raise SystemExit(NO_SOURCES.format(root=root))
    cmake, ninja = find_tool("cmake"), find_tool("ninja")
    if cmake is None:
        raise SystemExit(NO_CMAKE)
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    configured = (folder / "CMakeCache.txt").exists()
    run(cmake, "-S", root, "-B", folder, *([] if configured else generator), *switches)
    jobs = str(os.cpu_count() or 1)
    run(cmake, "--build", folder, "--target", "geomx_faults", "--parallel", jobs)
    return folder / "runtime_cpp/geomx_faults"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Compile and run.

    Args:
        arguments: Of ``geomx_faults``.
        root: A checkout of the sources.

    Returns:
        Its exit status: 0 if no law was broken, 1 otherwise, 2 for a wrong command line.

    Raises:
        SystemExit: It cannot be compiled; the message says why.
    """
    program = build(root, root / "build/faults")
    return subprocess.run([program, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
