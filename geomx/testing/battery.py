"""The battery of laws that a plugin has to satisfy, and its findings.

All laws are checked even after a failure, so that one run shows everything that remains to be done.
"""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError, GeomxError, near
from geomx.plugin.registration import KINDS, Plugin
from geomx.plugin.registry import Registry
from geomx.testing.finding import Broken, Finding, Law, Laws
from geomx.testing.parts import of_answers, of_options
from geomx.testing.runs import Runs
from geomx.testing.worlds import cluster as small_cluster

MODES = ("sim", "live")


class CheckFailed(AssertionError):  # noqa: N818 (shown by pytest)
    """Some laws do not hold; the message has the laws, expected and actual results, and the seed.

    Attributes:
        findings: All laws, including those that hold.
    """

    def __init__(self, label: str, findings: Sequence[Finding], seed: int) -> None:
        self.findings = list(findings)
        broken = [finding for finding in findings if finding.failure]
        lines = [f"{label}: {len(broken)} of {len(findings)} laws do not hold (seed {seed})"]
        lines += [f"  {finding.law}\n    {finding.failure}" for finding in broken]
        super().__init__("\n".join(lines))


def check_plugin(
    name: str,
    *,
    kind: str | None = None,
    modes: Sequence[str] = MODES,
    seed: int = 0,
    registry: Registry | None = None,
    options: Mapping[str, Any] | None = None,
    tell: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Check an installed plugin against all laws of its kind.

    Args:
        name: Name of the plugin, as on the command line.
        kind: ``accel``, ``sync``, ``track``, ``workload`` or ``network``, if the name alone is
            ambiguous.
        modes: ``sim``, ``live`` or both: how runs with the plugin are made. Live ones start
            processes and take seconds. Laws about its options and answers need no run.
        seed: Seed of all random values; a failure names it and repeats with it.
        registry: The installed plugins; None: discover them.
        options: Options of the plugin; the others have their defaults.
        tell: Called with every finding as it is made.

    Returns:
        All laws, which hold.

    Raises:
        ConfigError: The plugin, a mode or an option is unknown.
        CheckFailed: Laws do not hold.
    """
    if not modes or not set(modes) <= set(MODES):
        raise ConfigError("modes", ",".join(modes), "must be sim, live or sim,live")
    known = registry or Registry.discover()
    plugin = _find(known, name, kind)
    label = f"{plugin.kind} {plugin.name}"
    findings = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for law, check in _laws(known, plugin, modes, seed, options or {}, Path(folder)):
            finding = Finding(law, _failure(check))
            findings.append(finding)
            if tell is not None:
                tell(finding)
    if any(finding.failure for finding in findings):
        raise CheckFailed(label, findings, seed)
    return findings


def _find(registry: Registry, name: str, kind: str | None) -> Plugin:
    if kind is not None:
        if kind not in KINDS:
            raise ConfigError("kind", kind, near(kind, KINDS))
        return registry.find(kind, name)
    every = registry.plugins(variants=True)
    found = [plugin for plugin in every if plugin.name == name]
    if len(found) > 1:
        kinds = " or ".join(f"--kind {plugin.kind}" for plugin in found)
        raise ConfigError("check", name, f"is the name of several plugins; say {kinds}")
    if not found:
        known = {plugin.name for plugin in every}
        raise ConfigError("check", name, registry.missing(name, "plugin", known))
    return registry.find(found[0].kind, name)


def _failure(check: Law) -> str:
    try:
        check()
    except (Broken, GeomxError) as error:
        return str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return ""


def _laws(
    registry: Registry,
    plugin: Plugin,
    modes: Sequence[str],
    seed: int,
    options: Mapping[str, Any],
    folder: Path,
) -> Laws:
    yield "its docstring starts with a sentence on what it does", _documented(plugin)
    yield from of_options(plugin)
    if plugin.kind in ("accel", "sync"):
        choice = plugin.name, dict(options)
        accel = [choice] if plugin.kind == "accel" else []
        selection = registry.select(choice if plugin.kind == "sync" else None, accel)
        cluster = selection.cluster(small_cluster())
        yield from _guarded(of_answers(selection, plugin.kind, cluster, seed))
    yield from Runs(registry, plugin, options, seed, folder).laws(tuple(modes))


def _documented(plugin: Plugin) -> Law:
    def law() -> None:
        if len(plugin.summary.split()) < 3:
            raise Broken(
                "the first line of its docstring", "three words or more", repr(plugin.summary)
            )

    return law


def _guarded(laws: Laws) -> Iterator[tuple[str, Law]]:
    """Yield laws that depend on answers of hooks; a failing hook is a finding and ends them."""
    while True:
        try:
            yield next(laws)
        except StopIteration:
            return
        except GeomxError as error:
            words = str(error)

            def law(words: str = words) -> None:
                raise GeomxError(words)

            yield "its hooks return", law
            return
