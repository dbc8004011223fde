"""Why MXNet's operators are made when they are first used.

Importing MXNet 1.9.1 writes the Python text of some 2,300 functions, one per operator for `mx.nd`
and one for `mx.sym`, and compiles each: about half of what ``import mxnet`` costs, in every process
that trains, of which a network uses a few dozen. `operators_later` puts an `Operator` in the place
of each, which has MXNet make the very same function when somebody calls it or asks for its text.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Make = Callable[[Any, str, str], Any]
"""What makes an operator's function of its handle, its name and the name of the function."""


class Operator:
    """An operator of MXNet: called, documented and inspected like the function that it makes."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        self.__name__ = name
        self._make = make
        self._function: Any = None
        self._text: str | None = None
        self._signature: inspect.Signature | None = None

    def _made(self) -> Any:
        """The function; two threads that both make it get two of the same."""
        if self._function is None:
            function = self._make()
            function.__module__ = self.__module__
            self._function = function
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Invoke the operator; see its own text for what it takes."""
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
    """An ``import mxnet`` in here makes no operator before it is used.

    A version of MXNet that registers its operators otherwise is imported as it is.
    """
    finder = _BaseFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _BaseFinder:
    """Finds ``mxnet.base`` where it is, and changes what the rest of MXNet takes from it."""

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
    """What registers operators gives out an `Operator` for each function that it would make."""
    for name, registered in (("_init_op_module", _legacy), ("_init_np_op_module", _like_numpy)):
        register = getattr(base, name, None)
        if register is not None:
            setattr(base, name, registered(register))


def _legacy(register: Callable[..., None]) -> Callable[..., None]:
    """``base._init_op_module``, for `mx.nd` and `mx.sym`."""

    def init_op_module(root_namespace: str, module_name: str, make_op_func: Make) -> None:
        def later(handle: Any, name: str, called: str) -> Operator:
            return Operator(lambda: make_op_func(handle, name, called), called)

        register(root_namespace, module_name, later)

    return init_op_module


def _like_numpy(register: Callable[..., None]) -> Callable[..., None]:
    """``base._init_np_op_module``, for `mx.np` and `mx.npx`.

    It gives some operators a text of their own, and in the text of the others it writes
    ``ndarray`` for ``NDArray``: that is done here once such a text is made. Until it has been
    through, an operator's text is empty.
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
