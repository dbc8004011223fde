"""Checks of what the objects of plugins return, and their error messages."""

from __future__ import annotations

import copy
import difflib
import inspect
import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import PluginError
from geomx.plugin.coordination import Coordinator, Site
from geomx.plugin.parts import Native, optimizer_text
from geomx.plugin.rounds import RoundPolicy

_ALIKE = 0.88  # similarity of difflib: one letter added, omitted or swapped in eight or more
_OPTIONAL_METHODS = {
    "PartySync": ("initial", "answer", "members", "party_rounds"),
    "Coordinator": ("next_timeout", "on_timeout", "on_member"),
    "Codec": ("residual_norm", "settle"),
    "RoundPolicy": ("takes", "weigh"),
}
_OPTIONAL_ATTRIBUTES = {
    "Codec": ("in_every_slice", "linear", "stage"),
    "PartySync": ("makes_up",),
    "RoundPolicy": ("relative",),
    "Slicer": ("best_effort",),
}


def is_real(value: object) -> bool:
    """Return whether a value is a real number, of Python or numpy; truth values are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def attributes(protocol: type) -> set[str]:
    """Return the methods and attributes that an object must have to satisfy `protocol`."""
    named = (*vars(protocol), *inspect.get_annotations(protocol))
    return {name for name in named if not name.startswith("_")}


def lacking(protocol: type, answer: object) -> str:
    """Return which attributes an object lacks to satisfy `protocol`, as text in brackets."""
    lacks = sorted(name for name in attributes(protocol) if not hasattr(answer, name))
    return f" (which lacks {', '.join(lacks)} of a {protocol.__name__})" if lacks else ""


def check_names(label: str, noun: type, answer: object) -> None:
    """Refuse an object with a public name that is almost, but not exactly, one of `noun`.

    Names such as ``workers`` beside ``worker`` may belong to helpers and are accepted; names such
    as ``afterstep`` are not. A method must be one: ``push_scale = 0.5`` is refused too.

    Args:
        label: The plugin, as named in errors.
        noun: The class whose names geomx uses.
        answer: The object.

    Raises:
        PluginError: There is such a name; the message gives the correct one. Or a method's name
            has a value that cannot be called, or a method that does not take what it is given.
    """
    for name, member in vars(noun).items():
        if name[0] != "_" and inspect.isfunction(member):
            value = inspect.getattr_static(answer, name, member)
            if not callable(value) and not hasattr(value, "__get__"):  # what has, gives a method
                raise Held(answer, label).broken(name, "a method", value)
    narrow = _too_narrow(noun, type(answer))  # type: ignore[arg-type]
    if narrow is not None:
        raise PluginError(f"{label}: {type(answer).__name__}.{narrow}")
    found = _misspelt(noun, type(answer))  # type: ignore[arg-type]
    if found is not None:
        wrong, meant = found
        raise PluginError(
            f"{label}: geomx never uses {type(answer).__name__}.{wrong}; did you mean {meant} "
            f"of a {noun.__name__}? Give a helper another name, such as _{wrong}"
        )


@cache
def _too_narrow(noun: type, kind: type) -> str | None:
    """Return how a method of `kind` differs from that of `noun`, if it takes other arguments."""
    for name, member in vars(noun).items():
        value = inspect.getattr_static(kind, name, None)
        if name[0] == "_" or not inspect.isfunction(member) or not inspect.isfunction(value):
            continue
        theirs = inspect.signature(value, follow_wrapped=False)
        ours = list(inspect.signature(member).parameters)
        try:
            theirs.bind(*ours)
        except TypeError:
            bare = (each.replace(annotation=each.empty) for each in theirs.parameters.values())
            given = ", ".join(map(str, bare))
            return f"{name}({given}) must be {name}({', '.join(ours)})"
    return None


@cache
def _misspelt(noun: type, kind: type) -> tuple[str, str] | None:
    named = {name for name in (*vars(noun), *inspect.get_annotations(noun)) if name[0] != "_"}
    methods = {name for name in named if inspect.isfunction(vars(noun).get(name))}
    methods.update(_OPTIONAL_METHODS.get(noun.__name__, ()))
    attributes = (named - methods).union(_OPTIONAL_ATTRIBUTES.get(noun.__name__, ()))
    theirs: dict[str, Any] = {}
    for cls in reversed(kind.__mro__):
        if cls.__module__ != "builtins" and not cls.__module__.startswith("geomx.plugin."):
            theirs.update(vars(cls))
    for name, value in theirs.items():
        if name[0] == "_" or name in methods | attributes:
            continue
        known = methods if inspect.isroutine(value) else attributes
        near = difflib.get_close_matches(name, sorted(known - set(theirs)), n=1, cutoff=_ALIKE)
        number = near and "_" not in near[0] and name.rstrip("s") == near[0].rstrip("s")
        if near and not number:
            return name, near[0]
    return None


class Held:
    """An object of a plugin, with its name in errors."""

    def __init__(self, answer: object, label: str) -> None:
        self.label = label
        self.kind = type(answer).__name__

    def copied(self, answer: Any, cluster: Cluster) -> Any:
        """Return a node's own copy of the object; `PluginError` if it cannot be copied.

        A simulation has all nodes in one process. Without copies, an object that remembers
        something would do so for all of them, and simulated runs would differ from live ones.
        """
        try:
            return copy.deepcopy(answer, {id(cluster): cluster})
        except Exception as error:
            raise PluginError(
                f"{self.label}: {self.kind} cannot be copied, and every worker has its own copy "
                f"({type(error).__name__}: {error}); define {self.kind}.__deepcopy__"
            ) from error

    def broken(self, name: str, wanted: str, got: object, noun: type | None = None) -> PluginError:
        """Return the error for a value `got` of `name` that is not `wanted`, such as a `noun`."""
        text = " ".join(repr(got).split())
        short = text if len(text) <= 80 else f"{text[:77]}..."
        lacks = "" if noun is None or got is None else lacking(noun, got)
        return PluginError(f"{self.label}: {self.kind}.{name} must be {wanted}, not {short}{lacks}")

    def overrides(self, noun: type, answer: object, method: str, why: str) -> None:
        """Raise `PluginError` if the method of `answer` is that of its base class `noun`."""
        if getattr(type(answer), method) is getattr(noun, method):
            raise PluginError(
                f"{self.label}: {self.kind} has the default {noun.__name__}.{method}(), which does "
                f"not apply here because {why}; define {self.kind}.{method}()"
            )

    def truth(self, method: str, answer: object) -> bool:
        """Return `answer` if it is a bool; otherwise raise `PluginError`."""
        if isinstance(answer, bool | np.bool_):
            return bool(answer)
        raise self.broken(f"{method}()", "True or False", answer)

    def promise(self, name: str, value: object) -> bool:
        """Return the value of an attribute if it is a bool of Python, which C++ reads; else raise.

        Raises:
            PluginError: It is something else.
        """
        if isinstance(value, bool):
            return value
        if isinstance(value, np.bool_):
            wanted = (
                f"must be Python's True or False, as bool() makes it, not numpy's {bool(value)}"
            )
            raise PluginError(f"{self.label}: {self.kind}.{name} {wanted}")
        raise self.broken(name, "True or False", value)

    def number(self, method: str, answer: Any) -> float:
        """Return `answer` if it is a number that float32 can hold; else raise `PluginError`."""
        if isinstance(answer, numbers.Real | np.number) and not isinstance(answer, bool):
            value = float(answer)
            if abs(value) <= float(np.finfo(np.float32).max):
                return value
        raise self.broken(f"{method}()", "a finite number", answer)

    def numbers(self, method: str, answer: Any, count: int) -> list[int]:
        """Return `answer` sorted if it has different numbers below `count`; else raise."""
        found = list(answer) if isinstance(answer, Collection) else [answer]
        whole = all(isinstance(n, int | np.integer) and 0 <= n < count for n in found)
        if whole and len(set(found)) == len(found):
            return sorted(int(number) for number in found)
        raise self.broken(f"{method}()", f"different numbers from 0 to {count - 1}", answer)

    def whole(self, method: str, answer: Any, least: int, most: int, what: str) -> int:
        """Return `answer` if it is an integer in the range; otherwise raise `PluginError`."""
        if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
            value = int(answer)
            if least <= value <= most:
                return value
        raise self.broken(method, f"{what}, a whole number from {least} to {most}", answer)

    def optimizer(self, method: str, answer: Any) -> dict[str, Any] | None:
        """Return `answer` if it is None or a name with numbers; otherwise raise `PluginError`."""
        wanted = 'None or a dict such as {"name": "sgd", "learning_rate": 0.1}'
        if answer is None:
            return None
        if not isinstance(answer, Mapping) or not isinstance(answer.get("name"), str):
            raise self.broken(f"{method}()", wanted, answer)
        for option, value in answer.items():
            real = isinstance(value, numbers.Real | np.number) and not math.isnan(float(value))
            if not isinstance(option, str) or not (real or option == "name"):
                raise self.broken(f"{method}()[{option!r}]", "a number", value)
        return dict(answer)

    def known_optimizer(
        self, method: str, answer: Any, other: object, needed: bool = False
    ) -> dict[str, Any] | None:
        """Return `answer` if it is None or an optimizer that exists; else raise `PluginError`.

        Args:
            method: The method of a sync policy that returned it.
            answer: An optimizer's name with numbers, or None.
            other: Name of the workload's optimizer, which may be a plugin's.
            needed: Whether it must not be None, as nothing would be trained.
        """
        if needed and answer is None:
            raise self.broken(f"{method}()", "an optimizer where parameters are exchanged", answer)
        made, native = self.optimizer(method, answer), _core.optimizers()
        if made is not None and made["name"] in native:
            try:
                _core.Optimizer(optimizer_text(made), 0)
            except ValueError as error:
                raise self.broken(f"{method}()", f"an optimizer ({error})", answer) from error
        elif made is not None and made["name"] != other:
            raise self.broken(f"{method}()['name']", f"one of {', '.join(native)}", made["name"])
        return made

    def native(self, name: str, answer: Native, kind: str) -> Native:
        """Return `answer` if it names a compiled part of `kind`; otherwise raise `PluginError`."""
        if answer.kind != kind:
            raise self.broken(f"{name}.kind" if name else "kind", repr(kind), answer.kind)
        where = f"{name}.options" if name else "options"
        if not isinstance(answer.options, Mapping):
            raise self.broken(where, "numbers by name", answer.options)
        for option, value in answer.options.items():
            if not isinstance(value, numbers.Real | np.number):
                raise self.broken(f"{where}[{option!r}]", "a number", value)
        return answer

    def rounds(self, method: str, answer: Any) -> Native | RoundPolicy | None:
        """Return `answer` if it closes rounds, or is None; otherwise raise `PluginError`."""
        if answer is None:
            return None
        if isinstance(answer, Native):
            return self.native(method, answer, "rounds")
        if not isinstance(answer, RoundPolicy):
            wanted = "a RoundPolicy, a Native or None"
            raise self.broken(method, wanted, answer, RoundPolicy)
        check_names(self.label, RoundPolicy, answer)
        Held(answer, self.label).promise("relative", getattr(answer, "relative", True))
        return answer

    def site(self, method: str, answer: Any, hosts: Sequence[NodeSpec], where: str) -> Site:
        """Return `answer` if it is a coordinator on one of `hosts`; else raise `PluginError`."""
        if not isinstance(answer, Site):
            raise self.broken(method, "a geomx.Site", answer)
        if answer.host not in hosts:
            raise self.broken(f"{method}.host", where, getattr(answer.host, "name", answer.host))
        if isinstance(answer.native, Native):
            self.native(f"{method}.native", answer.native, "coordinator")
        elif isinstance(answer.native, Coordinator):
            check_names(self.label, Coordinator, answer.native)
        else:
            wanted = "a Coordinator or a Native"
            raise self.broken(f"{method}.native", wanted, answer.native, Coordinator)
        return answer
