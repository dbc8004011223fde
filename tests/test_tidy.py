"""Rules of the source tree: imports, the sans-IO core, sizes of files, docstrings, and tools."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import networkx as nx
import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ("geomx", "sim", "plugins", "conf", "tests", "benchmarks", "examples")
NATIVE = ("runtime_cpp", "plugins")
LINES = 400
TEST_LINES = 600  # test cases are independent and are read one at a time

# Longer files, with the reason.
LONG = {
    "benchmarks/simulator/speed.py": "its rows, what measures them and their table are one command",
}


def files(folders: tuple[str, ...], *suffixes: str) -> list[str]:
    """Return paths relative to the root, without build products."""
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    kept = (path for path in found if path.suffix in suffixes and path.is_file())
    return sorted(str(path.relative_to(ROOT)) for path in kept if "__pycache__" not in path.parts)


MODULES = files(PYTHON, ".py")
HEADERS = files(NATIVE, ".h")
UNITS = files(NATIVE, ".cc", ".cu", ".h")
UNSHIPPED = ("runtime_cpp/tests/", "runtime_cpp/faults/")
SHIPPED = [p for p in UNITS if not (p.startswith(UNSHIPPED) or p.endswith("_test.cc"))]
EVERYTHING = (
    MODULES + UNITS + files(("geomx", "conf", "runtime_cpp"), ".txt", ".yaml", ".js", ".css")
)


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse(text(path))


# ---- imports ----


def module_name(path: str) -> str:
    """Return the name under which a file is imported."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    inside = dotted.split(".")[0] in ("sim", "plugins", "conf")
    return f"geomx.{dotted}" if inside else dotted


@cache
def imports(path: str) -> tuple[tuple[int, str], ...]:
    """Return (line, module) of every import in a file, also within functions."""
    here = module_name(path).split(".")
    package = here if path.endswith("__init__.py") else here[:-1]
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, origin)]
            found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
    return tuple(found)


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def forbidden(path: str, module: str) -> bool:
    """Return whether an import has a forbidden direction."""
    home = path.split("/", maxsplit=1)[0]
    if module.split(".", maxsplit=1)[0] in ("sim", "plugins", "conf", "runtime_cpp"):
        return True  # once installed, these are geomx.sim and so on
    if path == "geomx/runner.py":  # the only module that imports the simulator
        return within(module, "geomx.plugins", "geomx.conf", "simpy", "tests")
    if home == "geomx":
        return within(module, "geomx.sim", "geomx.plugins", "geomx.conf", "simpy", "tests")
    if home == "sim":
        return within(module, "geomx.plugins", "geomx.live", "geomx.conf", "hydra", "omegaconf")
    if home == "plugins":
        own = ".".join(["geomx", *path.split("/")[:2]])
        simulated, live = path.endswith("/sim.py"), path.endswith("/live.py")
        return (
            (within(module, "geomx.plugins") and not within(module, own))
            or (within(module, "geomx.sim", "simpy") and not simulated)
            or (within(module, "geomx.live") and not live)
            or within(module, "hydra", "omegaconf")
        )
    if home == "conf":
        return True
    return home == "examples" and within(module, "geomx._core")


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in MODULES
        if not path.startswith(("tests", "benchmarks"))
        for line, name in imports(path)
        if forbidden(path, name)
    ]
    assert not wrong, "\n".join(wrong)


ROOMS = {
    # Every folder and module directly in geomx/, with those that it may import.
    "errors": "",
    "imports": "",
    "version": "",
    "yaml_files": "",
    "events": "",
    "cluster": "",
    "workload": "errors",
    "terminal": "errors",
    "frameworks": "errors imports",
    "limits": "errors",
    "options": "errors",
    "network": "cluster errors options terminal yaml_files",
    "plugin": "cluster errors events limits options workload",
    "experiment": "cluster errors limits network options plugin scenario version workload",
    "scenario": "cluster errors network options yaml_files",
    "training": "cluster errors plugin",
    "workloads": "errors frameworks options plugin workload yaml_files",
    "results": "cluster errors network terminal version",
    "pages": "cluster errors results terminal",
    "tracking": "experiment limits plugin results",
    "metrics": "cluster errors results terminal",
    "live": "cluster errors events experiment frameworks imports limits metrics network options"
    " plugin pages results scenario terminal tracking training version workload",
    "virtual": "cluster errors live terminal",
    "sim": "cluster errors events experiment limits network options plugin pages results scenario"
    " terminal tracking training workload",
    "config": "errors experiment network options plugin results terminal yaml_files",
    "kv": "cluster errors experiment frameworks imports live network options plugin virtual"
    " workload",
    "mxnet": "errors frameworks imports kv live virtual",
    "torch": "errors experiment imports kv live plugin training virtual",
    "compat": "errors imports kv live mxnet network options plugin workloads",
    "machines": "cluster config errors experiment live options results terminal version yaml_files",
    "runner": "config errors experiment limits live pages results scenario sim virtual",
    "calibrate": "cluster errors experiment live network options plugin terminal version",
    "study": "config errors experiment frameworks limits options plugin pages results runner"
    " terminal version",
    "planning": "cluster config errors experiment explaining options plugin pages results runner"
    " study terminal version",
    "explaining": "errors network plugin pages results study terminal version",
    "testing": "cluster errors experiment network options plugin results runner workload",
    "cli": "calibrate cluster compat config errors experiment explaining frameworks imports limits"
    " live machines metrics network options planning plugin pages results runner study terminal"
    " testing version geomx",
    "__main__": "cli",
    "geomx": "errors kv options plugin results runner version",  # the public package
}
NEED_A_FRAMEWORK = (  # these import MXNet or PyTorch, which are optional
    "geomx.compat.store", "geomx.live.mxnet_exchange", "geomx.live.torch_exchange", "geomx.mxnet",
    "geomx.virtual.mxnet_exchange", "geomx.virtual.torch_exchange",
    "geomx.workloads.transformer_model",
)  # fmt: skip
BY_NAME = {  # files that import by name, with the reason
    "geomx/__init__.py": "importing geomx alone is to take no time",
    "geomx/cli/main.py": "a command does not wait for what only another one needs",
    "geomx/cli/reference.py": "it describes the names of a table",
    "geomx/frameworks/mxnet_loader.py": "packages of MXNet's are imported when they are used",
    "geomx/plugin/registration.py": "plugins are found",
    "geomx/plugin/registry.py": "plugins are found",
}
CORE = "geomx._core"  # compiled
NOT_OURS = ("geomx/compat/hook/sitecustomize.py",)  # runs in scripts' processes
OWN = [p for p in MODULES if p.startswith(("geomx/", "sim/")) and p not in NOT_OURS]
BY_MODULE = {module_name(path): path for path in OWN}


def own_imports(path: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, own module, whether it is within a function) of the imports in a file."""

    def within_nodes(node: ast.AST, function: bool) -> Iterator[tuple[ast.AST, bool]]:
        for child in ast.iter_child_nodes(node):
            inner = function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield child, inner
            yield from within_nodes(child, inner)

    for node, function in within_nodes(parsed(path), False):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            full = [f"{origin}.{alias.name}" for alias in node.names]
            names = [name if name in (*BY_MODULE, CORE) else origin for name in full]
        else:
            continue
        yield from ((node.lineno, name, function) for name in names if name in BY_MODULE)


def room(module: str) -> str:
    return module.removeprefix("geomx.").split(".")[0]


def test_there_is_no_circle_of_imports() -> None:
    """Imports for type annotations are included."""
    graph = nx.DiGraph()
    for path in OWN:
        graph.add_edges_from((module_name(path), name) for _, name, _ in own_imports(path))
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert circles == []
    assert not [module for module in graph if graph.has_edge(module, module)]


def test_folders_import_only_allowed_folders() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in OWN
        for line, name, _ in own_imports(path)
        if room(name) != room(module_name(path))
        and room(name) not in ROOMS[room(module_name(path))].split()
    ]
    assert not wrong, "\n".join(wrong)
    assert nx.is_directed_acyclic_graph(nx.DiGraph({k: v.split() for k, v in ROOMS.items()}))


def test_every_folder_and_module_is_in_the_table() -> None:
    there = {room(module) for module in BY_MODULE}
    assert there == set(ROOMS)
    loose = [path for path in OWN if re.fullmatch(r"geomx/\w+\.py", path)]
    names = "__init__ __main__ errors events imports runner version workload yaml_files"
    assert sorted(loose) == [f"geomx/{name}.py" for name in names.split()]


def test_the_architecture_page_lists_folders_in_import_order() -> None:
    page = text("docs/architecture.md").partition("## The folders of `geomx/`")[2]
    lines = page.split("```")[1].strip().split("\n")
    assert len(lines) <= 25
    listed = [name for line in lines for name in re.findall(r"\b(\w+)(?:/|\.py) ", line)]
    assert {*listed, "geomx", "__main__", "sim"} == set(ROOMS)
    upwards = [
        f"{name} -> {used}"
        for place, name in enumerate(listed)
        for used in ROOMS[name].split()
        if used in listed[:place]
    ]
    assert upwards == []


def test_own_modules_are_imported_at_module_level() -> None:
    """Except modules that need a framework; other packages may be optional or slow to import."""
    hidden = [
        f"{path}:{line}: {name}"
        for path in OWN
        for line, name, function in own_imports(path)
        if function and not within(name, *NEED_A_FRAMEWORK)
    ]
    assert not hidden, "\n".join(hidden)


def test_own_modules_are_not_imported_by_name() -> None:
    found = set()
    for path in OWN:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and re.search(
                r"(^|\.)(import_module|__import__|resolve_name)$", ast.unparse(node.func)
            ):
                name = ast.literal_eval(node.args[0]) if is_text(node.args[0]) else None
                if name is None or (within(name, "geomx") and name != CORE):
                    found.add(path)
    assert found == set(BY_NAME)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


HYDRA = (
    "geomx/config/compose.py",
    "geomx/config/composition.py",
    "geomx/config/defaults.py",
    "geomx/config/messages.py",
    "geomx/config/own_files.py",
    "geomx/cli/main.py",
    "geomx/config/groups.py",
)


def test_hydra_is_imported_by_the_configuration_only() -> None:
    ours = [path for path in MODULES if path.startswith("geomx/")]
    users = {p for p in ours if any(within(m, "hydra", "omegaconf") for _, m in imports(p))}
    assert users <= set(HYDRA)


# ---- the core is sans-IO ----

OUTSIDE = re.compile(
    r"#\s*include\s*<(chrono|thread|random|ctime|time\.h|mutex|condition_variable|atomic|future"
    r"|iostream|fstream|filesystem|unistd\.h|fcntl\.h|netdb\.h|(sys|arpa|netinet|net)/[^>]*)>"
    r"|\b(getenv|gettimeofday|clock_gettime|std::chrono|std::thread|rand)\b"
)
SANS_IO = ("runtime_cpp/core/", "runtime_cpp/net/", "runtime_cpp/fabric/", "plugins/")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
MAY_INCLUDE = {  # plugins may include the same as core
    "kernels": ("kernels",),
    "core": ("core", "kernels"),
    "net": ("net", "core"),
    "fabric": ("fabric", "net", "core"),
    "io": ("io", "net", "core", "kernels"),
    "emulation": ("emulation", "io", "net", "core"),
    "bindings": ("bindings", "emulation", "fabric", "io", "net", "core", "kernels"),
}


def test_the_core_uses_no_clock_thread_or_socket() -> None:
    seen = [
        f"{path}: {match.group()}"
        for path in SHIPPED
        if path.startswith(SANS_IO)
        for match in OUTSIDE.finditer(re.sub(r"//.*", "", text(path)))
    ]
    assert not seen, "\n".join(seen)


def test_includes_point_one_way() -> None:
    wrong = [
        f"{path}: {name}"
        for path in SHIPPED
        for name in INCLUDE.findall(text(path))
        if "/" in name and name.split("/")[0] not in MAY_INCLUDE[folder_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def folder_of(path: str) -> str:
    """Return the folder of a source file, as named in `MAY_INCLUDE`."""
    return "core" if path.startswith("plugins/") else path.split("/")[1]


def test_no_environment_variable_is_read() -> None:
    assert [path for path in SHIPPED if "getenv" in text(path)] == []


# ---- form of files ----


def test_modules_begin_with_a_docstring() -> None:
    openings = {path: ast.get_docstring(parsed(path)) or "" for path in MODULES}
    bare = [
        p for p, said in openings.items() if len(said.split()) < 4 or not re.match(r"[`\w]", said)
    ]
    assert not bare, "\n".join(bare)


def test_cpp_files_begin_with_a_comment() -> None:
    """Sources with a header of the same name need no comment of their own."""
    alone = [p for p in UNITS if not (p.endswith(".cc") and p.replace(".cc", ".h") in HEADERS)]
    openings = {path: text(path).split("\n\n")[0] for path in alone}
    bare = [p for p, said in openings.items() if len(said.split()) < 6 or said[:3] != "// "]
    assert not bare, "\n".join(bare)


def offences(pattern: str, paths: list[str], flags: re.RegexFlag = re.NOFLAG) -> list[str]:
    """Return where a pattern occurs, except in this file."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        if path != "tests/test_tidy.py"
        for number, line in enumerate(text(path).split("\n"), 1)
        if re.search(pattern, line, flags)
    ]


SOURCES = [path for path in EVERYTHING if not path.startswith(("tests/", "benchmarks/"))]


@pytest.mark.parametrize(
    ("what", "pattern", "paths"),
    [
        ("unfinished", r"\b(TODO|FIXME|XXX|HACK)\b", EVERYTHING),
        ("a machine's path", r"/(work|home/\w+|root|tmp)/", SOURCES),
        ("a tab", r"\t", EVERYTHING),
        ("a trailing blank", r"[ \t]+$", EVERYTHING),
    ],
)
def test_no_line_has(what: str, pattern: str, paths: list[str]) -> None:
    found = offences(pattern, paths)
    assert found == [], f"{what}:\n" + "\n".join(found)


def test_names_in_the_runtimes_page_exist() -> None:
    """Files, and functions with their class, in runtime_cpp/README.md."""
    page = text("runtime_cpp/README.md")
    units = {path: text(path) for path in SHIPPED if path.startswith("runtime_cpp/")}
    named = set(re.findall(r"`([\w/]+\.(?:h|cc))`", page))
    assert len(named) > 20
    assert sorted(name for name in named if not (ROOT / "runtime_cpp" / name).is_file()) == []
    everything = "\n".join(units.values())
    functions = set(re.findall(r"`(\w+)::(\w+)`", page))
    assert len(functions) > 20
    missing = [
        f"{owner}::{name}"
        for owner, name in functions
        if f"{owner}::{name}(" not in everything
        and not any(
            re.search(rf"\b(class|struct) {owner}\b", unit) and re.search(rf"\b{name}\(", unit)
            for unit in units.values()
        )
    ]
    assert sorted(missing) == []


def test_files_end_with_one_newline() -> None:
    ends = {path: text(path) for path in EVERYTHING if text(path)}
    assert [p for p, t in ends.items() if not t.endswith("\n") or t.endswith("\n\n")] == []


def test_no_table_is_interrupted() -> None:
    """In Markdown, rows after an empty line are text, unless they begin another table."""
    rows = re.compile(r"^\|.*\n\n(\|.*)\n(?!\|[-:|])", re.MULTILINE)
    pages = {path: text(path) for path in ("README.md", *files(("docs", "benchmarks"), ".md"))}
    assert len(pages) > 30
    assert {path: found for path, page in pages.items() if (found := rows.findall(page))} == {}


WIDTH = 120  # characters of a line of prose
WIDE = {
    "docs/composition.md": "benchmarks/composition/matrix.py quotes messages in it",
}
ONE_LINK = re.compile(r"!?\[[^]]*\]\([^)]*\)|\S+")


def too_wide(page: str) -> list[int]:
    """Return the lines of a page that are longer than `WIDTH`, outside tables and code blocks."""
    found, code = [], False
    for number, line in enumerate(page.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith("|") and len(line) > WIDTH:
            found += [] if ONE_LINK.fullmatch(line.strip()) else [number]
    return found


def test_prose_is_wrapped() -> None:
    pages = [*("README.md", "CONTRIBUTING.md"), *files(("docs",), ".md")]
    wide = {path: lines for path in pages if (lines := too_wide(text(path)))}
    assert {path: lines for path, lines in wide.items() if path not in WIDE} == {}
    assert [path for path in WIDE if path not in wide] == [], "no longer wide"


def test_only_prose_must_be_wrapped() -> None:
    long = "words " * 30
    assert too_wide(f"{long}\n* {long}\n| {long} |\n```\n{long}\n```\n{long}") == [1, 2, 7]
    assert too_wide(f"![{long}](picture.svg)\nhttps://{'x' * 130}\n") == []


def test_files_are_not_too_long() -> None:
    counts = {path: text(path).count("\n") for path in MODULES + UNITS}
    most = {p: TEST_LINES if "test" in p else LINES for p in counts}
    too_long = {p: n for p, n in counts.items() if n > most[p] and p not in LONG}
    assert too_long == {}, "split them, or say in LONG why not"
    assert [path for path in LONG if counts.get(path, 0) <= LINES] == [], "no longer long"


def test_only_pythons_that_mxnet_supports_are_allowed() -> None:
    """MXNet needs numpy 1, whose last release has wheels for Python 3.9 to 3.12."""
    admitted = SpecifierSet(tomllib.loads(text("pyproject.toml"))["project"]["requires-python"])
    versions = [f"3.{minor}.{patch}" for minor in range(9, 15) for patch in (0, 9)]
    assert {each[:4] for each in admitted.filter(versions)} == {"3.11", "3.12"}


# ---- tools ----


def tool(name: str, *arguments: str) -> Callable[[], None]:
    """Return a test that runs a Python tool on the tree, or is skipped if it is not installed."""

    @pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")
    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-m", name, *arguments],
            check=False, cwd=ROOT, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]

    return run


test_ruff_is_clean = tool("ruff", "check", ".")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_is_clean(tmp_path: Path) -> None:
    """In the layout of an installation, where `sim`, `plugins` and `conf` are inside geomx."""
    package = tmp_path / "geomx"
    package.mkdir()
    inside = [ROOT / name for name in ("sim", "plugins", "conf")]
    for part in (*(ROOT / "geomx").iterdir(), *inside):
        (package / part.name).symlink_to(part)
    settings = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *settings],
        check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
