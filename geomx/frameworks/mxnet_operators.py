"""Lazy creation of MXNet's operators.

Importing MXNet 1.9.1 generates the Python source of some 2,300 functions, one per operator for
`mx.nd` and one for `mx.sym`, and compiles each: about half of the cost of ``import mxnet``, in
every training process, of which a network uses a few dozen. `operators_later` puts an `Operator` in
place of each, which has MXNet create the same function when it is called or inspected.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Make = Callable[[Any, str, str], Any]
"""Creates an operator's function from its handle, its name and the name of the function."""


class Operator:
    """An operator of MXNet, which behaves like the function that it creates on first use."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        self.__name__ = name
        self._make = make
        self._function: Any = None
        self._text: str | None = None
        self._signature: inspect.Signature | None = None

    def _made(self) -> Any:
        """Return the function; two threads may both create it, with equal results."""
        if self._function is None:
            function = self._make()
            function.__module__ = self.__module__
            self._function = function
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator; see its own documentation for the arguments."""
        return (self._function or self._made())(*args, **kwargs)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._made(), attribute)

    def __repr__(self) -> str:
        return f"<operator {self.__name__} of {self.__module__}>"

    def _get_text(self) -> str | None:
        text: str | None = self._made().__doc__ if self._text is None else self._text
        return text

    def _set_text(self, text: str) -> None:
        self._text = text

    def _get_signature(self) -> inspect.Signature:
        return self._signature or inspect.signature(self._made())

    def _set_signature(self, signature: inspect.Signature) -> None:
        self._signature = signature

    # As properties, since inspect and pydoc look for them under these names.
    __doc__ = property(_get_text, _set_text)
    __signature__ = property(_get_signature, _set_signature)


@contextlib.contextmanager
def operators_later() -> Iterator[None]:
    """Make an ``import mxnet`` in the block create operators lazily.

    A version of MXNet that registers its operators in another way is imported unchanged.
    """
    finder = _BaseFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _BaseFinder:
    """Finds ``mxnet.base``, and replaces the functions that register operators."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        if name != "mxnet.base":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _register_later(module)

            loader.exec_module = exec_module
        return spec


def _register_later(base: Any) -> None:
    """Replace the functions that register operators by ones that create `Operator` objects."""
    for name, registered in (("_init_op_module", _legacy), ("_init_np_op_module", _like_numpy)):
        register = getattr(base, name, None)
        if register is not None:
            setattr(base, name, registered(register))


def _legacy(register: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``base._init_op_module``, for `mx.nd` and `mx.sym`."""

    def init_op_module(root_namespace: str, module_name: str, make_op_func: Make) -> None:
        def later(handle: Any, name: str, called: str) -> Operator:
            return Operator(lambda: make_op_func(handle, name, called), called)

        register(root_namespace, module_name, later)

    return init_op_module


def _like_numpy(register: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``base._init_np_op_module``, for `mx.np` and `mx.npx`.

    It documents some operators itself, and replaces ``NDArray`` by ``ndarray`` in the documentation
    of the others; here the latter is done when that text is created. Until it has returned, the
    text of an operator is empty.
    """

    def init_np_op_module(
        root_module_name: str, np_module_name: str, mx_module_name: str | None, make_op_func: Make
    ) -> None:
        given = []

        def later(handle: Any, name: str, called: str) -> Operator:
            def make() -> Any:
                function = make_op_func(handle, name, called)
                function.__doc__ = function.__doc__.replace("NDArray", "ndarray")
                return function

            operator = Operator(make, called)
            operator._text = ""
            given.append(operator)
            return operator

        register(root_module_name, np_module_name, mx_module_name, later)
        for operator in given:
            operator._text = operator._text or None

    return init_np_op_module
