"""A plugin is a folder of plugins/: if any is deleted, the rest builds and runs."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import geomx
from geomx import _core
from geomx.options.costs import CodecCosts, Costs
from geomx.options.named_costs import named_costs
from geomx.plugin.api import PLUGINS
from geomx.plugin.experiment import Experiment, Simulation
from geomx.plugin.registration import DEFAULT_SYNC, Register
from geomx.plugin.registry import Registry

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(
    path.name for path in (ROOT / "plugins").iterdir() if (path / "__init__.py").exists()
)
COMPOSITIONS = {"mpq": {"bisparse", "fp16"}}
SPEAKS_FREELY = ("conf", "tests", "docs", "examples", "benchmarks", "build", "outputs", "multirun")
SUFFIXES = {".py", ".cc", ".h", ".js", ".css", ".txt", ".toml", ".cmake"}
IGNORED = shutil.ignore_patterns("*.so", "*.pyc.*")  # temporary files of other processes

# Imports geomx from the tree at the front of sys.path, however geomx was installed, without any
# plugin. Then a process for each folder looks for plugins in all other folders.
SCRIPT = """
import os, sys, traceback
sys.meta_path[:] = [f for f in sys.meta_path if str(f.__module__).startswith("_frozen_importlib")]
import geomx
assert geomx.__file__.startswith(sys.path[0]), geomx.__file__
import geomx.cli.plugins, geomx.cli.runs, geomx.sim.simulation
from geomx import plugins
from geomx.cli.main import main
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.testing.worlds import together

def use(index, deleted, left, composed):
    registry = Registry.discover()
    assert [error.error for error in registry.broken] == [
        f"accel {name} from {error.origin}: is made of accel {deleted}, which is not installed"
        for name, error in zip(composed, registry.broken, strict=True)
    ], registry.broken
    names = {plugin.name for plugin in registry.plugins()}
    assert set(left) <= names, names
    assert deleted not in names or deleted == DEFAULT_SYNC, names
    assert main(["plugins"]) == 0

    words = ["numerics=false", "iterations=1"]
    assert geomx.run([*words, "hydra.run.dir=run"]).summary["rounds"] == 1
    names = [plugin.name for plugin in registry.plugins("accel")]
    accel = ",".join(together(registry, names[::-1]))
    # Plugins neither import nor name each other (below), so with each deletion one sync is enough.
    syncs = [plugin.name for plugin in registry.plugins("sync")]
    sync = syncs[index % len(syncs)]
    results = geomx.run([*words, f"+accel=[{accel}]", f"+sync={sync}", "hydra.run.dir=all"])
    assert results.summary["sync"]["name"] == sync

for index, (deleted, left, composed) in enumerate(DELETIONS):
    if os.fork() == 0:
        try:
            os.chdir(deleted)
            plugins.__path__[:] = [os.path.abspath("plugins")]
            use(index, deleted, left, composed)
            said = "works"
        except BaseException:
            said = traceback.format_exc()
        with open("said", "w") as file:
            file.write(said)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def deletions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Use this project's packages without one plugin at a time, in the layout of an installation.

    In the returned folder, the file `said` of the plugin's folder says what went wrong.
    """
    tree = tmp_path_factory.mktemp("tree")
    package = shutil.copytree(ROOT / "geomx", tree / "geomx", ignore=IGNORED)
    for part in ("sim", "conf"):
        shutil.copytree(ROOT / part, package / part, ignore=IGNORED, dirs_exist_ok=True)
    (package / "plugins").mkdir()
    shutil.copy(ROOT / "plugins" / "__init__.py", package / "plugins")
    core = Path(_core.__file__)
    (package / core.name).symlink_to(core)
    plans = []
    for folder in FOLDERS:
        composed = sorted(name for name, parts in COMPOSITIONS.items() if folder in parts)
        left = [name for name in FOLDERS if name != folder and name not in composed]
        plans.append((folder, left, composed))
        (tree / folder / "plugins").mkdir(parents=True)
        for other in {*FOLDERS} - {folder}:
            (tree / folder / "plugins" / other).symlink_to(ROOT / "plugins" / other)
    (tree / "script.py").write_text(f"DELETIONS = {plans!r}\n{SCRIPT}")
    done = subprocess.run(
        [sys.executable, "script.py"],
        check=False, cwd=tree, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_rest_works_without_a_plugin(folder: str, deletions: Path) -> None:
    said = (deletions / folder / "said").read_text(encoding="utf-8")
    assert said == "works", said


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_registers_a_plugin_of_its_name(folder: str) -> None:
    registry = Registry()
    parts = sorted(COMPOSITIONS.get(folder, ()))
    for name in (*parts, folder):
        registry.load(f"geomx.plugins.{name}")
    assert registry.broken == []
    (plugin,) = (plugin for plugin in registry.plugins() if plugin.name not in parts)
    assert plugin.name == folder
    assert sorted(plugin.made_of) == parts
    assert plugin.summary.endswith(".")


def test_cmake_finds_native_sources_by_pattern() -> None:
    """CMake lists no plugin, but uses the sources in all folders."""
    text = (ROOT / "runtime_cpp" / "CMakeLists.txt").read_text()
    assert re.search(r"GLOB\w*[^)]*plugins/\*", text)


def sources() -> Iterator[Path]:
    """Yield every source in which plugins must not be named."""
    for top in sorted(ROOT.iterdir()):  # not all of an environment in the tree
        if top.name.startswith(".") or top.name in SPEAKS_FREELY:
            continue
        for path in [top, *sorted(top.rglob("*"))]:
            relative = path.relative_to(ROOT)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
            if path.suffix in SUFFIXES and not hidden:
                yield relative


TRANSLATIONS = {Path("geomx/compat/variables.py")}  # GeoMX's names of plugins


def test_plugins_are_named_in_their_folders_only() -> None:
    """Exceptions: the registry names the default policy, with which plugins may compare themselves,
    combined plugins name their parts, GeoMX's names are in one table, extras have the
    names of the packages that plugins need, and tests combine plugins."""
    if not FOLDERS:
        pytest.skip("there are no plugins")
    word = re.compile(rf"(?<!\w)({'|'.join(FOLDERS)})(?=\b|_)", re.IGNORECASE)
    spoken = []
    tests = (Path("runtime_cpp/tests"), Path("runtime_cpp/faults"))
    for path in sources():
        if path.name.endswith("_test.cc") or path.parent in tests or path in TRANSLATIONS:
            continue
        own = {path.parts[1], DEFAULT_SYNC} if path.parts[0] == "plugins" else set()
        own |= COMPOSITIONS.get(path.parent.name, set())
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if path == Path("geomx/plugin/registration.py") and line.startswith("DEFAULT_SYNC = "):
                continue
            if path == Path("pyproject.toml") and re.match(r"\w+ = \[", line):
                continue
            names = {name.lower() for name in word.findall(line)} - own
            spoken += [f"{path}:{number}: {name}: {line.strip()}" for name in sorted(names)]
    assert spoken == [], "\n" + "\n".join(spoken)


def test_cost_tables_name_no_plugin() -> None:
    """The costs of a plugin's codecs are in its folder, or in a user's file."""
    tables = repr((Costs(), CodecCosts(), named_costs()))
    assert [name for name in FOLDERS if re.search(rf"(?<!\w){name}(?=\b|_)", tables)] == []


def test_plugins_import_public_names_only() -> None:
    """Built-in plugins use the same interface as third-party ones."""
    public: set[int] = {id(Register), id(Experiment), id(Simulation)}  # arguments of hooks
    for module, names in PLUGINS.items():
        public |= {id(getattr(importlib.import_module(module), name)) for name in names}
    private = []
    for path in sorted((ROOT / "plugins").glob("*/*.py")):
        own = f"geomx.plugins.{path.parent.name}"
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if not isinstance(node, ast.ImportFrom) or module.startswith(own):
                continue
            if module.split(".")[0] == "geomx":
                loaded = importlib.import_module(module)
                found = [alias.name for alias in node.names]
                private += [(path, n) for n in found if id(getattr(loaded, n)) not in public]
    assert private == []


def test_public_names_exist() -> None:
    for name in geomx.__all__:
        assert getattr(geomx, name) is not None
