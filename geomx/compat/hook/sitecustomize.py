"""On ``PYTHONPATH`` of processes under ``geomx compat``: redirects ``import mxnet`` to geomx.

Python imports a module of this name at every start. It costs nothing in processes that do not
import MXNet, and then imports another ``sitecustomize`` further down the path.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _Entrance(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``mxnet``, once: the import inside is that of the real one."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name != "mxnet":
            return None
        sys.meta_path.remove(self)
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Enter; returns the real module, or never."""
        try:
            from geomx.compat.import_hook import enter
        except ImportError as error:
            raise ImportError(
                f"{sys.executable} has no geomx ({error}): run geomx compat with the Python that "
                "the script runs, or install geomx there"
            ) from error
        module: ModuleType = enter()
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has been executed; it gets back what the import machinery has replaced."""
        module.__spec__ = self._spec
        module.__loader__ = self._spec.loader if self._spec is not None else None


def _next_sitecustomize() -> None:
    """Run the module of the same name that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _Entrance())
_next_sitecustomize()
