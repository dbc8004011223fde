"""The import of MXNet, whose last release predates its surroundings.

MXNet 1.9.1 uses names that numpy has since dropped (``np.bool`` in 1.24, ``np.NaN`` and others in
2.0) and a standard module that Python dropped (``distutils``, in 3.12), so a plain ``import mxnet``
fails on current systems. `load_mxnet` restores what is missing; nothing that numpy has is replaced,
and programs that do not use MXNet are not affected. MXNet also passes shapes to operators as text,
in which a scalar of numpy 2 would be ``np.int64(3)``: therefore scalars are printed as before from
then on, unless the program has chosen a style.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from geomx.errors import ConfigError
from geomx.frameworks.mxnet_operators import operators_later
from geomx.imports import without_collections

# With MXNet's default of one thread, a finished gradient waits for the next operator.
_variables = {"OMP_NUM_THREADS": "1", "MXNET_CPU_WORKER_NTHREADS": "2"}


def compute_at_once() -> None:
    """Let MXNet, which this process has not loaded yet, compute every operation within its call.

    For processes in which no live worker trains. A simulation needs every result at once, and
    passing operations to MXNet's threads and waiting for them takes a quarter of the time of a
    small experiment. Live workers and scripts need these threads, in which operations wait for
    values from the network. A user's choice of ``MXNET_ENGINE_TYPE`` is kept.
    """
    _variables["MXNET_ENGINE_TYPE"] = "NaiveEngine"


def load_mxnet() -> Any:
    """Import MXNet under any installed numpy, without warnings.

    Two packages that take longer to import than MXNet itself are not imported with it, unless they
    are loaded already: scikit-learn, which would only be the parent class of the deprecated
    ``mx.model.FeedForward``, and ``scipy.stats``, which is imported when a function uses it.
    Operators are created on first use (`geomx.frameworks.mxnet_operators`).

    MXNet is loaded with ``OMP_NUM_THREADS=1`` unless the user has set a number: MXNet splits sums
    among its threads, and only with one thread do a simulated and a live worker compute
    bit-identical gradients. (On one machine the workers share the cores anyway.) The environment is
    restored on return.

    Returns:
        The module ``mxnet``.

    Raises:
        ConfigError: MXNet is not installed, or the system lacks a library that it needs.
    """
    if "mxnet" in sys.modules:
        return sys.modules["mxnet"]
    _restore_numpy_names()
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0" and not np.get_printoptions()["legacy"]:
        before: Any = "1.25"  # unknown to the type stubs of numpy 1
        np.set_printoptions(legacy=before)
    with contextlib.ExitStack() as meanwhile:
        meanwhile.enter_context(_unless_chosen(**_variables))
        meanwhile.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for change in (_distutils_version, _statistics_later, operators_later):
            meanwhile.enter_context(change())
        meanwhile.enter_context(_without("sklearn"))
        meanwhile.enter_context(without_collections())
        _restore_scipy_name()
        try:
            mxnet = importlib.import_module("mxnet")
            if "MXNET_ENGINE_TYPE" in _variables:  # which the first operation reads
                with _without_stderr():
                    mxnet.nd.waitall()
            return mxnet
        except ModuleNotFoundError as error:
            raise ConfigError(
                "mxnet",
                "missing",
                f"no module named {error.name}: pip install mxnet==1.9.1, "
                "or set numerics=false for sizes and times only",
            ) from error
        except OSError as error:
            raise ConfigError(
                "mxnet",
                "unusable",
                f"{error}: install that system library (libgomp1 on Debian and Ubuntu), "
                "or set numerics=false for sizes and times only",
            ) from error


@contextlib.contextmanager
def _unless_chosen(**variables: str) -> Iterator[None]:
    """Set environment variables that are not set, during the block, for MXNet's import."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drop what is written to standard error: MXNet writes a line if its engine was chosen."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _restore_numpy_names() -> None:
    """Add to numpy the missing names that importing MXNet 1.9.1 looks up."""
    for name, value in _numpy_names().items():
        if not _present(np, name):
            setattr(np, name, value)


def _present(module: Any, name: str) -> bool:
    """Return whether ``module.name`` exists and can be looked up without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            getattr(module, name)
        except (AttributeError, Warning):
            return False
    return True


def _numpy_names() -> dict[str, Any]:
    """Return every dropped name with its former value, for numpy 1.22 to 2.4."""
    names: dict[str, Any] = {
        "bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str,
        "Inf": np.inf, "PINF": np.inf, "NINF": -np.inf, "PZERO": 0.0, "NZERO": -0.0,
        "NaN": np.nan, "NAN": np.nan,
        "alltrue": np.all, "sometrue": np.any, "product": np.prod, "round_": np.round,
        "in1d": np.isin, "msort": _msort, "trapz": getattr(np, "trapezoid", None),
    }  # fmt: skip
    financial = ("mirr", "npv", "pmt", "ppmt", "pv", "rate")
    return names | dict.fromkeys(financial, _moved_to_numpy_financial)


def _msort(array: Any) -> Any:
    """Sort along the first axis, as ``np.msort`` did."""
    return np.sort(array, axis=0)


def _moved_to_numpy_financial(*_: Any, **__: Any) -> NoReturn:
    """Replace the financial functions, which numpy 1.x kept only to raise this error."""
    raise RuntimeError("numpy's financial functions now live in the package numpy-financial")


def _restore_scipy_name() -> None:
    """Avoid scipy's warning on ``scipy.sparse.csr.csr_matrix`` in `mxnet.nd.array`."""
    try:
        csr = importlib.import_module("scipy.sparse.csr")
    except ImportError:
        return
    if not _present(csr, "csr_matrix"):
        csr.csr_matrix = importlib.import_module("scipy.sparse").csr_matrix  # type: ignore[attr-defined]


@contextlib.contextmanager
def _distutils_version() -> Iterator[None]:
    """Provide the two version classes of ``distutils`` that MXNet's import needs, during the block.

    Python 3.12 and later have no such module, and before that setuptools replaces it by a large
    one. It is removed again, because installers look for the real one.
    """
    if "distutils" in sys.modules:
        yield
        return
    from packaging.version import Version

    version = types.ModuleType("distutils.version")
    vars(version).update(LooseVersion=Version, StrictVersion=Version)
    lent = {"distutils": types.ModuleType("distutils"), "distutils.version": version}
    sys.modules.update(lent)
    try:
        yield
    finally:
        for name in lent:
            sys.modules.pop(name, None)


class _Later:
    """A placeholder for a module that is imported on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


@contextlib.contextmanager
def _statistics_later() -> Iterator[None]:
    """Block ``scipy.stats`` during the block; then give MXNet's modules a placeholder for it."""
    with _without("scipy.stats"):
        yield
    for module, name in (("mxnet.contrib.quantization", "stats"), ("mxnet.test_utils", "ss")):
        if getattr(sys.modules.get(module), name, ...) is None:
            setattr(sys.modules[module], name, _Later("scipy.stats"))


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Make the import of package `name` fail during the block, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
