"""MXNet loads with every version of numpy, without output, and without changes to numpy."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.errors import ConfigError
from geomx.frameworks import mxnet_loader
from geomx.frameworks.mxnet_memory import Overwritten
from geomx.frameworks.mxnet_operators import operators_later

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]

needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="mxnet is not installed"
)

PROBE = """
import ctypes, json, os, pathlib, sys
import numpy as np
environment = dict(os.environ)
before = dict(vars(np))
from geomx.frameworks.mxnet_loader import load_mxnet
mx = load_mxnet()
array = mx.nd.array(np.ones((3, 4), np.float32)) + 1
maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
print(json.dumps({
    "version": mx.__version__,
    "same": mx is load_mxnet(),
    "sum": float(array.sum().asscalar()),
    "clobbered": [name for name, value in before.items() if vars(np).get(name) is not value],
    "lent": [name for name in ("distutils", "distutils.version")
             if getattr(sys.modules.get(name), "__spec__", 1) is None],
    "threads": ctypes.CDLL(next(
        line.split()[-1] for line in maps if "libgomp" in line
    )).omp_get_max_threads(),
    "environment": environment == dict(os.environ),
}))
"""


def fresh(code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter that sees what this one sees."""
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@needs_mxnet
@pytest.mark.parametrize("threads", [None, "2"])
def test_loading_is_silent_and_does_not_change_numpy(threads: str | None) -> None:
    chosen = {} if threads is None else {"OMP_NUM_THREADS": threads}
    done = fresh(PROBE, "-W", "always", **chosen)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["version"] == "1.9.1"
    assert found["same"]
    assert found["sum"] == 24.0
    assert found["clobbered"] == []
    assert found["lent"] == []
    assert found["threads"] == int(threads or 1)
    assert found["environment"]


@needs_mxnet
@pytest.mark.parametrize("chosen", [{}, {"MXNET_ENGINE_TYPE": "ThreadedEngine"}])
def test_a_process_that_only_simulates_computes_without_mxnets_threads(
    chosen: dict[str, str],
) -> None:
    """In silence, and unless the user has chosen an engine; the sums have the same bits."""
    code = (
        "import os\n"
        "from geomx.frameworks import mxnet_loader\n"
        "mxnet_loader.compute_at_once()\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "mx = mxnet_loader.load_mxnet()\n"
        "print(float(mx.nd.ones((4, 6)).sum().asscalar()))\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
        "print('MXNET_ENGINE_TYPE' in os.environ)\n"
    )
    done = fresh(code, **chosen)
    assert done.returncode == 0 and done.stderr == ""
    total, threads, kept = done.stdout.split()
    assert total == "24.0" and (int(threads) == 0) == (not chosen)
    assert (kept == "True") == bool(chosen)


@needs_mxnet
def test_loading_works_without_distutils_and_with_warnings_as_errors() -> None:
    hide = (
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'distutils' else find(name, *rest)\n"
        "class Nowhere:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'distutils':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Nowhere())\n"
    )
    done = fresh(hide + PROBE, "-W", "error")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lent"] == []


def test_missing_mxnet_is_an_error_with_a_remedy() -> None:
    code = (
        "import sys\n"
        "class Nowhere:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mxnet':\n"
        "            raise ModuleNotFoundError('No module named mxnet', name='mxnet')\n"
        "sys.meta_path.insert(0, Nowhere())\n"
        "from geomx.errors import ConfigError\n"
        "from geomx.frameworks.mxnet_loader import load_mxnet\n"
        "try:\n"
        "    load_mxnet()\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    done = fresh(code)
    assert done.returncode == 0, done.stderr
    assert "pip install mxnet==1.9.1" in done.stdout
    assert "numerics=false" in done.stdout


def test_missing_system_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[str], Any] = importlib.import_module

    def without_libgomp(name: str) -> Any:
        if name == "mxnet":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return real(name)

    monkeypatch.delitem(sys.modules, "mxnet", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(importlib, "import_module", without_libgomp)
    with pytest.raises(ConfigError, match=r"libgomp\.so\.1"):
        mxnet_loader.load_mxnet()


def test_names_dropped_by_numpy_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    names = mxnet_loader._numpy_names()
    numpy = bare_numpy()
    monkeypatch.setattr(mxnet_loader, "np", numpy)
    mxnet_loader._restore_numpy_names()
    restored = vars(numpy)
    assert set(names) <= set(restored)
    assert restored["float"] is float
    assert np.isneginf(restored["NINF"])
    assert str(restored["NZERO"]) == "-0.0"
    unsorted = np.array([[3, 1], [2, 5]])
    assert restored["msort"](unsorted).tolist() == [[2, 1], [3, 5]]
    assert restored["sometrue"]([0, 1])
    with pytest.raises(RuntimeError, match="numpy-financial"):
        restored["npv"](0.1, [1, 2])


def bare_numpy() -> types.SimpleNamespace:
    """Return a numpy with only the names that the loader itself uses."""
    kept = ("inf", "nan", "all", "any", "prod", "round", "isin", "sort")
    return types.SimpleNamespace(**{name: getattr(np, name) for name in kept})


def test_existing_names_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = bare_numpy()
    numpy.bool = np.bool_
    monkeypatch.setattr(mxnet_loader, "np", numpy)
    mxnet_loader._restore_numpy_names()
    assert numpy.bool is np.bool_


@needs_mxnet
def test_numpys_integers_bound_slices() -> None:
    """MXNet formats them for its operators, in the format of the installed numpy."""
    mx = mxnet_loader.load_mxnet()
    array = mx.nd.zeros((4, 3))
    array[np.int64(1) : np.int64(3)] = 1
    assert array.asnumpy().sum() == 6


@needs_mxnet
def test_rarely_used_modules_are_imported_on_use() -> None:
    code = """
import sys
from geomx.frameworks.mxnet_loader import load_mxnet
mx = load_mxnet()
assert not {"sklearn", "scipy.stats"} & set(sys.modules)
from mxnet.contrib import quantization
assert quantization.stats.entropy([0.5, 0.5]) > 0.69
assert mx.test_utils.ss.norm.ppf(0.5) == 0
assert "scipy.stats" in sys.modules
import sklearn.base
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


OPERATORS = """
import inspect, json, sys, warnings
warnings.simplefilter("ignore")
from geomx.frameworks import mxnet_loader
if not json.loads(sys.argv[1]):
    import contextlib
    mxnet_loader.operators_later = contextlib.nullcontext
mxnet_loader.load_mxnet()
from geomx.frameworks.mxnet_operators import Operator
found = {}
for module in [module for name, module in sys.modules.items() if name.startswith("mxnet")]:
    for name, value in vars(module).items():
        if not isinstance(value, Operator) and (
            not inspect.isfunction(value) or name.startswith("_init_")
        ):
            continue
        try:
            signature = str(inspect.signature(value))
        except ValueError as error:
            signature = repr(error)
        told = [value.__name__, value.__module__, value.__doc__, signature]
        found[f"{module.__name__}.{name}"] = told
print(json.dumps(found))
"""


@needs_mxnet
def test_lazily_created_operators_equal_mxnets() -> None:
    """Each has the name, module, docstring and signature of the eagerly created one."""
    results = []
    for later in ("true", "false"):
        done = subprocess.run(
            [sys.executable, "-c", OPERATORS, later],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    later, at_once = results
    assert len(at_once) > 4000
    assert later == at_once


@needs_mxnet
def test_importing_mxnet_creates_few_operators() -> None:
    code = """
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.frameworks.mxnet_operators import Operator
mx = load_mxnet()
places = (mx.nd.op, mx.nd._internal, mx.sym.op, mx.sym._internal, mx.np._op)
every = [value for place in places for value in vars(place).values() if isinstance(value, Operator)]
assert len(every) > 1000
assert sum(operator._function is not None for operator in every) < 10
assert mx.nd.relu(mx.nd.array([-1, 2])).asnumpy().tolist() == [0, 2]
assert mx.nd.relu._function is not None and mx.nd.relu.__code__ is mx.nd.relu._function.__code__
assert mx.np.sum.__doc__ and "NDArray" not in mx.npx.relu.__doc__
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


def test_another_version_of_mxnet_is_imported_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that registers its operators differently, or has no ``base``."""
    package = tmp_path / "mxnet"
    package.mkdir()
    (package / "__init__.py").write_text("from . import base\n")
    (package / "base.py").write_text("names = ['relu']\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    with operators_later():
        assert importlib.import_module("mxnet").base.names == ["relu"]
    assert sys.meta_path == finders
    for name in [name for name in sys.modules if name.split(".")[0] == "mxnet"]:
        monkeypatch.delitem(sys.modules, name)


# ---- memory ----


@needs_mxnet
def test_an_array_that_is_being_made_is_overwritten_in_its_own_memory(seed: int) -> None:
    mx = mxnet_loader.load_mxnet()
    draw = np.random.default_rng(seed)
    for _ in range(300):
        array = mx.nd.zeros((16, 1, 5, 5)).copyto(mx.cpu())  # whose memory a thread takes
        memory = Overwritten(array)
        for _ in range(2):
            value = draw.normal(size=array.shape).astype(np.float32)
            memory.set(value)
            assert (array.asnumpy() == value).all()
