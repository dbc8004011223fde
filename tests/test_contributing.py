"""CONTRIBUTING.md: its lists of files are complete, and its release names every version.

Each kind of contribution is made in a copy of this repository and used there; the changed files are
compared with the list.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import geomx
from geomx import _core
from geomx.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("conf", "docs", "geomx", "plugins", "sim", "tests")
ALONE = ("CONTRIBUTING.md", "README.md", "pyproject.toml")
PACKAGES = ("conf", "plugins", "sim")  # in geomx once installed
IGNORED = shutil.ignore_patterns("__pycache__", "*.so", "generated")
NAME = "newcomer"

# Imports geomx from the tree at the front of sys.path, however geomx was installed.
IN_THE_TREE = """
import sys
sys.path.insert(0, ".")
sys.meta_path[:] = [f for f in sys.meta_path if str(f.__module__).startswith("_frozen_importlib")]
import pytest
import geomx

def run(*words):
    folder = "_".join(word.partition("=")[2].strip("[]") for word in words)
    return geomx.run([*words, "iterations=2", f"hydra.run.dir=outputs/{folder}"]).summary

def check(*words):
    assert pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *words]) == 0
"""


def listed(section: str) -> list[str]:
    """Return the files of one list of the page."""
    (text,) = re.findall(rf"<!-- files: {section} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    return re.findall(r"^\* `([^`]+)`: \S", text, re.MULTILINE)


class Tree:
    """A copy of this repository in which contributions are made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in COPIED:
            shutil.copytree(ROOT / folder, root / folder, ignore=IGNORED)
        for file in ALONE:
            shutil.copy(ROOT / file, root / file)
        for package in PACKAGES:
            (root / "geomx" / package).symlink_to(root / package)
        core = Path(_core.__file__)
        (root / "geomx" / core.name).symlink_to(core)
        self._before = self._files()

    def _files(self) -> dict[str, str]:
        found = (path for folder in COPIED for path in (self.root / folder).rglob("*"))
        texts = (path for path in found if path.suffix in (".py", ".pyi", ".md", ".txt", ".yaml"))
        files = [*texts, *(self.root / file for file in ALONE)]
        return {str(p.relative_to(self.root)): p.read_text(encoding="utf-8") for p in files}

    def add(self, path: str, text: str) -> None:
        """Add a new file."""
        file = self.root / path
        assert not file.exists()
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def insert(self, path: str, after: str, lines: str) -> None:
        """Insert `lines` after the only line of a file that begins with `after`."""
        file = self.root / path
        old = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (place,) = [n for n, line in enumerate(old, 1) if line.startswith(after)]
        file.write_text("".join([*old[:place], lines, *old[place:]]), encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace every `old` in a file by `new`."""
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    def touched(self) -> list[str]:
        """Return new and changed files, with NAME instead of the contribution's name."""
        now = self._files()
        changed = [path for path in now if now[path] != self._before.get(path)]
        assert set(self._before) <= set(now)
        return sorted(path.replace(NAME, "NAME") for path in changed)

    def use(self, script: str) -> None:
        """Run a Python script that imports geomx from this tree."""
        done = subprocess.run(
            [sys.executable, "-c", IN_THE_TREE + script],
            check=False, cwd=self.root, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def generated(kind: str, folder: Path) -> str:
    """Return the module that ``geomx new-plugin`` generates for a plugin of this kind."""
    with contextlib.chdir(folder):
        assert main(["new-plugin", NAME, "--kind", kind]) == 0
    return (folder / f"geomx-{NAME}" / f"geomx_{NAME}.py").read_text(encoding="utf-8")


PLUGIN_PAGE = """# newcomer

This page is about a plugin. It is there for a test. It has three sentences.

```
worker ── local server ── global server
```

| option | default | unit | what |
|---|---|---|---|
| `{option}` | {default} | | an option |

No paper of its own.

```bash
python -m geomx '{words}'
```

<!-- measured -->
| | ms per iteration |
|---|---|
| with newcomer | 1 |
| without | 2 |
<!-- end -->
"""


def plugin_files(
    tree: Tree, source: str, beside: str, words: str, option: str, default: int
) -> None:
    """Add a plugin to the repository, and to the pages that mention it."""
    tree.add(f"plugins/{NAME}/__init__.py", source)
    page = PLUGIN_PAGE.format(words=words, option=option, default=default)
    tree.add(f"docs/plugins/{NAME}.md", page)
    tree.insert("docs/README.md", f"| [{beside}](", f"| [{NAME}](plugins/{NAME}.md) | a test |\n")
    tree.insert("docs/index.md", f"plugins/{beside}", f"plugins/{NAME}\n")
    choice = f"sync={NAME}" if "sync" in words else f"accel=[{NAME}]"
    row = f"| `{choice}` | a test | a test |\n"
    tree.insert("README.md", f"| `{choice.replace(NAME, beside)}`", row)


def plugin(tree: Tree, source: str, beside: str, words: str, option: str, default: int) -> None:
    """Add a plugin, and run an experiment with it."""
    plugin_files(tree, source, beside, words, option, default)
    tree.use(
        f"assert run('workload=tiny', 'numerics=false', '{words}')['rounds'] > 0\n"
        f"check('tests/test_plugin_pages.py', '-k', '{NAME} or index or README_and')"
    )


def accelerator(tree: Tree, folder: Path) -> None:
    plugin(tree, generated("codec", folder), "fp16", f"+accel=[{NAME}]", "levels", 127)


def sync(tree: Tree, folder: Path) -> None:
    plugin(tree, generated("sync", folder), "fsa", f"+sync={NAME}", "steps", 5)


OBJECTS = """    @geomx.hookimpl
    def geomx_newcomer(self, cluster):
        \"\"\"Small clusters are refused.\"\"\"
        return "too few parties" if len(cluster.parties) < 3 else None

"""

SPECIFICATION = """

@hookspec
def geomx_newcomer(cluster: Cluster) -> str | None:
    \"\"\"Object to a cluster, by a sentence.\"\"\"
"""

ASKS = '''    def newcomer(self, cluster: Cluster) -> list[str]:
        """What plugins object to."""
        return [sentence for _, sentence in self._ask("geomx_newcomer", cluster=cluster)]

'''

USES = """    if objections := selection.newcomer(cluster):
        raise ConfigError("network", cluster.name, "; ".join(objections))
"""

SECTION = """### `geomx_newcomer(cluster: Cluster) -> str | None`

Object to a cluster, by a sentence.

```python
class Example:
    @geomx.hookimpl
    def geomx_newcomer(self, cluster):
        return None if cluster.parties else "no party trains"
```

"""

USED = """
assert run("workload=tiny", "numerics=false", "accel=[newcomer]", "network=five_regions")["rounds"]
try:
    run("workload=tiny", "numerics=false", "accel=[newcomer]", "network=two_parties")
except geomx.ConfigError as error:
    assert "too few parties" in str(error)
else:
    raise AssertionError("the hook was not asked")
check("tests/test_plugin_docs.py", "-k", "in_order or geomx_newcomer or every_public_name_exists")
"""


def hook(tree: Tree, folder: Path) -> None:
    """Add a hook, and a plugin that implements it."""
    source = generated("codec", folder)
    head, marker, tail = source.partition("    @geomx.hookimpl\n    def geomx_codec")
    plugin_files(tree, head + OBJECTS + marker + tail, "fp16", f"+accel=[{NAME}]", "levels", 127)
    specifications = (tree.root / "geomx/plugin/hookspecs.py").read_text(encoding="utf-8")
    tree.replace(
        "geomx/plugin/hookspecs.py",
        specifications, specifications + SPECIFICATION,
    )  # fmt: skip
    tree.insert("geomx/plugin/calling.py", "ANSWERS = {", '    "geomx_newcomer": ("str",),\n')
    tree.replace("geomx/plugin/selection.py", "    def _ask(", f"{ASKS}    def _ask(")
    uses = "geomx/experiment/validation.py"
    tree.insert(uses, "    selection.validate(", USES)
    tree.insert(uses, "from geomx.experiment.experiment", "from geomx.errors import ConfigError\n")
    way = '    "geomx_newcomer": lambda looking, label: None,\n'
    tree.insert("geomx/experiment/idle_plugins.py", "_WAYS: dict[", way)
    major, minor = geomx.api_version.split(".")
    newer = f"{major}.{int(minor) + 1}"
    tree.replace("geomx/plugin/api.py", geomx.api_version, newer)
    tree.replace("docs/hooks.md", geomx.api_version, newer)
    tree.replace("docs/hooks.md", "## Objects", SECTION + "## Objects")
    tree.use(USED)


WORKLOAD_TEST = """
import numpy as np
from geomx.workloads.newcomer import NewcomerConfig, newcomer

def test_a_gradient_is_the_slope_of_the_loss():
    model = newcomer(NewcomerConfig()).model(seed=1)
    before = model.step(0, 0, 1)
    slope, move = model.gradients[1].copy(), np.float32(1e-3)
    model.set(1, model.parameters[1] + move)
    assert np.allclose((model.step(0, 0, 1) - before) / move, slope, atol=1e-3)
"""


def workload(tree: Tree, folder: Path) -> None:
    source = generated("workload", folder).partition("\n\n@geomx.hookimpl")[0]
    tree.add(f"geomx/workloads/{NAME}.py", source)
    registered = f'    register("workload", "{NAME}", NewcomerConfig, {NAME})\n'
    tree.insert("geomx/workloads/__init__.py", '    register("workload", "tiny"', registered)
    imported = f"from geomx.workloads.{NAME} import NewcomerConfig, {NAME}\n"
    tree.insert("geomx/workloads/__init__.py", "from geomx.workloads.cnn", imported)
    tree.add(f"tests/test_{NAME}.py", WORKLOAD_TEST)
    tree.use(
        f"assert run('workload={NAME}')['accuracy'] is not None\n"
        f"assert run('workload={NAME}', 'numerics=false')['rounds'] > 0\n"
        f"check('tests/test_{NAME}.py')"
    )


LISTS = {accelerator: ("accelerator",), sync: ("sync",), workload: ("workload",),
         hook: ("accelerator", "hook")}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("make", LISTS, ids=lambda make: make.__name__)
def test_a_contribution_touches_the_listed_files(
    make: Callable[[Tree, Path], None], tmp_path: Path
) -> None:
    tree = Tree(tmp_path / "tree")
    make(tree, tmp_path)
    assert tree.touched() == sorted(file for section in LISTS[make] for file in listed(section))


def test_a_plugin_project_has_the_listed_files(tmp_path: Path) -> None:
    generated("codec", tmp_path)
    project = tmp_path / f"geomx-{NAME}"
    found = [str(p.relative_to(project)) for p in project.rglob("*") if p.is_file()]
    assert sorted(f.replace(NAME, "NAME") for f in found) == sorted(listed("project"))


def test_an_optimizer_is_in_the_listed_files() -> None:
    """The list contains all files in which AdaGrad is named, as an example."""
    shipped = [p for d in ("runtime_cpp", "geomx", "docs") for p in (ROOT / d).rglob("*.*")]
    texts = [p for p in shipped if p.suffix in (".cc", ".cu", ".h", ".py", ".md") and p.is_file()]
    named = [p for p in texts if "adagrad" in p.read_text(encoding="utf-8").lower()]
    assert sorted(str(p.relative_to(ROOT)) for p in named) == sorted(listed("optimizer"))


def test_listed_files_exist_unless_they_are_new() -> None:
    sections = re.findall(r"<!-- files: (\w+) -->", PAGE)
    assert len(sections) == len(set(sections)) == 6
    files = [file for section in sections for file in listed(section) if section != "project"]
    assert [file for file in files if "NAME" not in file and not (ROOT / file).is_file()] == []


def test_all_files_have_the_same_version() -> None:
    """The files that "Release" lists, and the latest release in the changelog."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert project["version"] == geomx.__version__ == citation["version"] == released[0]
    assert changelog.index("## [Unreleased]") < changelog.index(f"## [{released[0]}]")
    assert project["license"] == citation["license"] == "Apache-2.0"
