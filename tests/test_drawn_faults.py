"""`python -m geomx.testing.faults` compiles `geomx_faults` from the sources and runs it.

test_cpp.py runs the program itself; here a small one of the same name takes its place.
"""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from geomx.testing import faults

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(small LANGUAGES C)
set(EXECUTABLE_OUTPUT_PATH ${CMAKE_BINARY_DIR}/runtime_cpp)
add_executable(geomx_faults main.c)
"""


@pytest.mark.skipif(
    faults.find_tool("cmake") is None or shutil.which("cc") is None, reason="no CMake or C compiler"
)
@pytest.mark.slow
def test_the_program_is_compiled_and_given_the_arguments(tmp_path: Path) -> None:
    assert (faults.ROOT / "runtime_cpp/faults/main.cc").exists()
    (tmp_path / "runtime_cpp/faults").mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "main.c").write_text("int main(int n, char** words) { return n + words[1][0]; }")
    assert faults.main(["7", "--note"], tmp_path) == 3 + ord("7")
    (tmp_path / "main.c").write_text("int main(void) { return 1 }")
    with pytest.raises(SystemExit, match="expected"):
        faults.main([], tmp_path)


def test_an_installation_without_sources_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"does not contain them: clone .* `pip install -e \.`"):
        faults.main(["--seeds", "1"], tmp_path)


def test_without_cmake_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime_cpp/faults").mkdir(parents=True)
    monkeypatch.setattr(faults, "find_tool", lambda _: None)
    with pytest.raises(SystemExit, match="pip install cmake"):
        faults.main([], tmp_path)


def test_every_bug_to_plant_fits_the_sources() -> None:
    """The text that each of them replaces is in its source file."""
    mutations = runpy.run_path(str(faults.ROOT / "benchmarks/faults/mutations.py"))
    planted = mutations["read_planted"]()
    assert len({each.name for each in planted}) == len(planted)
    for each in planted:
        source = (faults.ROOT / "runtime_cpp" / each.file).read_text(encoding="utf-8")
        assert each.planted(source) != source
