"""YAML that users write: what it says, or one phrase on why it cannot be used.

PyYAML keeps the last of two equal keys, follows aliases that stand for billions of values, and
raises errors of several kinds and lines. Files of networks, scenarios and jobs are read here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

MOST_ALIASED = 20_000
"""Limit on the values for which the aliases of a file stand: four thousand sites of four keys.

Hydra copies a network's unknown keys at a few thousand values per second."""


class YamlError(ValueError):
    """A file or text that cannot be used; the message is to follow the name of the file."""


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file, as `parse_yaml` does of its text.

    Args:
        path: The file, in UTF-8.

    Raises:
        YamlError: It cannot be read, or `parse_yaml` refuses its text.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise YamlError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise YamlError("cannot be read: it is not a text file") from error


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    Args:
        text: One document.

    Returns:
        Its content: tables, lists, text, numbers, dates, null.

    Raises:
        YamlError: It is not YAML, has a key twice, contains itself, or its aliases stand for
            more than `MOST_ALIASED` values.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def get_single_node(self) -> yaml.Node | None:
            node: yaml.Node | None = super().get_single_node()
            if node is not None:
                _check_aliases(node)
            return node

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            for name, times in Counter(map(str, names)).items():
                if times > 1:
                    raise YamlError(f"{name} comes twice at line {_line(node)} and after")
            made: dict[Any, Any] = super().construct_mapping(node, deep)
            return made

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (AttributeError, KeyError, ValueError) as error:
                if isinstance(error, YamlError):
                    raise
                kind = node.tag.rpartition(":")[2]
                told = f"{str(node.value)[:40]} at line {_line(node)} is no {kind}"
                raise YamlError(f"is not YAML: {told}; quote it if it is text") from error

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise YamlError(f"is not YAML: {reason}{where}") from error
    except RecursionError as error:
        raise YamlError("is not YAML: its lists and tables are nested too deeply") from error


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _check_aliases(root: yaml.Node) -> None:
    """Refuse a document that would be much larger without aliases, or endless."""
    known: dict[int, int] = {}
    aliased = _values(root, known) - len(known)
    if aliased > MOST_ALIASED:
        told = f"its aliases stand for {aliased:.3g} values"
        raise YamlError(f"{told}, more than {MOST_ALIASED}; use fewer of them")


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of nodes below and with one; each is entered in `known` by its id."""
    if id(node) in known:
        if not known[id(node)]:
            raise YamlError(f"contains itself by an alias at line {_line(node)}")
        return known[id(node)]
    known[id(node)] = 0
    below = [] if isinstance(node.value, str) else node.value
    parts = (part for each in below for part in (each if isinstance(each, tuple) else (each,)))
    known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
