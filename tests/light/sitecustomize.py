"""Keeps PyTorch from importing its compiler, which takes as long as importing PyTorch itself.

Python imports this module at its start where this folder is on PYTHONPATH. The first optimizer of a
process imports ``torch._dynamo`` only to mark functions that are not to be compiled. Of the import
of PyTorch itself, a fifth are searches for garbage, so there are fewer of them.
"""

import gc
import sys
from types import ModuleType
from typing import Any


def unmarked(function: Any = None, recursive: bool = True) -> Any:
    """Return the function, or a decorator that does."""
    return unmarked if function is None else function


marks = ModuleType("torch._compile")
marks._disable_dynamo = unmarked  # type: ignore[attr-defined]
sys.modules[marks.__name__] = marks

gc.set_threshold(100_000)
