"""The C++ tests, built and run as an optimised program and under the sanitizers.

They lie in runtime_cpp/tests and in the plugins' folders. The address and undefined-behaviour
sanitizers see the same tests, and a few seconds of hostile bytes (fuzz_wire.cc, without clang).
Both builds stay in build/, so that a second run compiles only what has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
FUZZ_SECONDS = 5

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def tool(name: str) -> str | None:
    """The program of that name, in this Python's environment or on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def call(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{words[0]} exited with {done.returncode}:\n{done.stdout[-8000:]}"
    return done.stdout


def build(name: str, *options: str) -> Path:
    """Folder with the programs, built with these CMake options."""
    folder = ROOT / "build" / f"cpp-tests-{name}"
    cmake, ninja = tool("cmake"), tool("ninja")
    assert cmake, "the C++ tests need CMake: pip install cmake ninja"
    # A cache made elsewhere (the checkout was moved or copied) would be refused.
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release", *options]
    call(cmake, "-S", ROOT, "-B", folder, *generator, *switches)
    call(cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1))
    return folder / "runtime_cpp"


def passed(output: str) -> int:
    """How many tests ran, from the last line; fails if any check did."""
    words = output.splitlines()[-1].split()
    assert words[1:] == ["tests,", "0", "failures"], output[-8000:]
    return int(words[0])


def test_the_optimised_build_passes_its_tests() -> None:
    assert passed(call(build("release") / "geomx_tests")) > 50


@pytest.fixture(scope="module")
def sanitized() -> Path:
    """Folder with the programs under the sanitizers, unoptimised: compiling is what takes time."""
    return build("sanitized", "-DGEOMX_SANITIZE=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O0")


def test_the_sanitizers_find_nothing(sanitized: Path) -> None:
    assert passed(call(sanitized / "geomx_tests")) > 50


def test_hostile_bytes_do_no_harm(sanitized: Path) -> None:
    output = call(sanitized / "fuzz_wire_main", str(FUZZ_SECONDS))
    inputs = int(output.splitlines()[-1].split()[0])
    assert inputs > 100, output
