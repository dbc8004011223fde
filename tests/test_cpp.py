"""Builds and runs the C++ tests, as an optimised program and under the sanitizers.

The tests are in runtime_cpp/tests and in the plugins' folders. The address and undefined-behaviour
sanitizers run the same tests, and a few seconds of fuzzing (fuzz_*.cc, without libFuzzer). The
build is kept in build/, so that a second run compiles changed files only. Objects that an editable
install compiled from the present sources are linked as they are. All else is compiled by Clang
where it is installed and CXX names no other compiler: that takes half as long as by GCC, and the
checks and warnings of two compilers find more than those of one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compilers import sanitizing_clang

ROOT = Path(__file__).resolve().parent.parent
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
FUZZ_SECONDS = 5
SHORT_STACKS = "malloc_context_size=5"  # of allocations; longer stacks take time

pytestmark = [
    pytest.mark.slow(20),  # compiling takes longer than any other test
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine"),
]


def installed() -> Path | None:
    """Return the build folder of an editable install of this checkout for this Python."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next((each.parent for each in ROOT.glob(f"build/{tag}-*/build.ninja")), None)


def up_to_date() -> bool:
    """Whether that compilation was of the C++ sources as they are now."""
    folder = installed()
    library = folder / "runtime_cpp" / "libgeomx_kernels.a" if folder else None
    if library is None or not library.exists():
        return False
    sources = [
        path
        for part in ("runtime_cpp", "plugins", "geomx/include")
        for path in (ROOT / part).rglob("*")
        if path.suffix in (".cc", ".h") or path.name == "CMakeLists.txt"  # how they are grouped
    ] + [ROOT / "CMakeLists.txt"]
    compiled = library.parent / "CMakeFiles/geomx_native.dir"
    first_s = min(path.stat().st_mtime for path in [library, *compiled.rglob("*.o")])
    return max(path.stat().st_mtime for path in sources) < first_s


def known(variable: str) -> str | None:
    """Return the value of a CMake variable of that build."""
    folder = installed()
    cache = (folder / "CMakeCache.txt").read_text() if folder else ""
    found = re.search(rf"^{variable}:\w+=(.+)$", cache, re.MULTILINE)
    return found[1] if found else None


def tool(name: str, variable: str) -> str | None:
    """Return the tool of that build, of this environment, or on the path."""
    used = known(variable)
    if used and Path(used).exists():
        return used
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def call(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env={
            **os.environ,
            "ASAN_OPTIONS": SHORT_STACKS,
            # Otherwise ccache keeps nothing that includes a precompiled header.
            "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"{words[0]} exited with {done.returncode}:\n{done.stdout[-8000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both programs, which share object files, and return their folder."""
    folder = ROOT / "build" / "cpp-tests"
    cmake, ninja = tool("cmake", "CMAKE_COMMAND"), tool("ninja", "CMAKE_MAKE_PROGRAM")
    assert cmake, "the C++ tests need CMake: pip install cmake ninja"
    # CMake refuses the cache of another folder, if the checkout was moved or copied.
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    clang = None if "CXX" in os.environ else sanitizing_clang(tmp_path_factory.mktemp("compiler"))
    compiler = {
        "CMAKE_CXX_COMPILER": clang or known("CMAKE_CXX_COMPILER"),
        "CMAKE_CXX_COMPILER_LAUNCHER": known("CMAKE_CXX_COMPILER_LAUNCHER"),
    }
    switches += [f"-D{name}={value}" for name, value in compiler.items() if value]
    switches += [f"-DGEOMX_COMPILED={installed()}"] if up_to_date() else []
    call(cmake, "-S", ROOT, "-B", folder, *generator, *switches)
    call(cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1))
    return folder / "runtime_cpp"


def test_a_missing_compiler_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmake, ninja = tool("cmake", "CMAKE_COMMAND"), tool("ninja", "CMAKE_MAKE_PROGRAM")
    assert cmake, "this test needs CMake: pip install cmake ninja"
    if not ninja:
        pytest.skip("Ninja is not installed: pip install ninja")
    words = [cmake, "-S", ROOT, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for _ in range(2):  # the second reads the cache of the first
        with pytest.raises(
            AssertionError, match=r"no C\+\+ compiler[^:]*: install one \(apt inst"
        ) as it:
            call(*words)
        assert len(str(it.value).splitlines()) < 20


def passed(output: str) -> int:
    """Return the number of tests from the last line; fail if any check failed."""
    words = output.splitlines()[-1].split()
    assert words[1:] == ["tests,", "0", "failures"], output[-8000:]
    return int(words[0])


def test_the_optimised_build_passes_its_tests(programs: Path) -> None:
    assert passed(call(programs / "geomx_tests")) > 50


def test_the_device_benchmark_trains_on_the_processor(programs: Path) -> None:
    """Values are encoded, sparsified and updated on the device, and copied back."""
    found = json.loads(call(programs / "device_live", "cpu", "30000", "40"))
    assert found["largest_difference"] == 0
    assert found["largest_error"] < 1


def test_the_sanitizers_find_nothing(programs: Path) -> None:
    assert passed(call(programs / "geomx_tests_sanitized")) > 50


def survived(output: str) -> dict[str, int]:
    """What happened in a run of geomx_faults, by the word behind its number, from its last line."""
    return {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", output.splitlines()[-1])}


def test_drawn_faults_break_no_law(programs: Path, seed: int) -> None:
    """Other seeds with another `--seed`; a failure prints the line that repeats it."""
    first = 1 + 1000 * seed
    found = survived(call(programs / "geomx_faults", "--first", str(first), "--seeds", "800"))
    assert found["seeds"] == 800 and found["broken"] == 0
    assert found["kills"] > 800 and found["recoveries"] > 150 and found["resets"] > 2000
    assert found["repeats"] > 100 and found["suspicions"] > 150 and found["rounds"] > 2000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--seeds 1e5", "--seeds 1e5: must be a whole number from 1"),
        ("--seeds 0", "--seeds 0: must be a whole number from 1"),
        ("--first -1", "--first -1: must be a whole number from 0"),
        ("--seeds", "--seeds: unknown, or a value is missing"),
        ("--sed 3", "--sed: unknown"),
        ("--seed 1 --keep 0;3", "--keep 0;3: must be a whole number from 0"),
        ("--seed 1 --keep 0,", "--keep : must be a whole number from 0"),
        ("--seed 1 --keep all", "--keep all: must be a whole number from 0"),
        ("--seed 1 --keep 99", "--keep 99: seed 1 has "),
        ("--seeds 2 --keep 0", "--keep: needs --seed"),
    ],
)
def test_drawn_faults_refuse_a_mistyped_command(programs: Path, words: str, complaint: str) -> None:
    done = subprocess.run(
        [programs / "geomx_faults", *words.split(" ")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(complaint), done.stderr


def test_the_sanitizers_find_nothing_under_drawn_faults(programs: Path, seed: int) -> None:
    first = 801 + 1000 * seed
    output = call(programs / "geomx_faults_sanitized", "--first", str(first), "--seeds", "150")
    found = survived(output)
    assert found["seeds"] == 150 and found["broken"] == 0


def test_the_seeds_that_found_bugs_break_no_law(programs: Path) -> None:
    """Those in the table of docs/faults_tests.md."""
    seeds = re.findall(r"\| seed (\d+)", (ROOT / "docs/faults_tests.md").read_text())
    assert len(seeds) > 5
    for each in seeds:
        assert survived(call(programs / "geomx_faults", "--seed", each))["broken"] == 0


@pytest.mark.parametrize("fuzzer", ["fuzz_wire", "fuzz_journal"])
def test_fuzzing_finds_nothing(programs: Path, fuzzer: str) -> None:
    output = call(programs / f"{fuzzer}_main", str(FUZZ_SECONDS))
    inputs = int(output.splitlines()[-1].split()[0])
    assert inputs > 100, output
