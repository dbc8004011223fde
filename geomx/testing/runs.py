"""Laws of whole runs with a plugin: repeatability, prediction, learning, composition."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from geomx.errors import ConfigError
from geomx.experiment.experiment import Experiment
from geomx.plugin.registration import Choice, Plugin
from geomx.plugin.registry import Registry
from geomx.results.results import Results
from geomx.testing.finding import Broken, Laws
from geomx.testing.worlds import NETWORK, SMALLEST, build, run

LONG = 40  # iterations, enough for the small model to learn something


class Runs:
    """A plugin in small experiments.

    Args:
        registry: The installed plugins.
        plugin: The plugin.
        options: Its options.
        seed: Seed of the experiments.
        folder: Folder for the runs' files.
    """

    def __init__(
        self,
        registry: Registry,
        plugin: Plugin,
        options: Mapping[str, Any],
        seed: int,
        folder: Path,
    ) -> None:
        self._registry, self._plugin, self._folder = registry, plugin, folder
        self._choice: Choice = plugin.name, dict(options)
        self._seed = seed

    def experiment(self, **changes: Any) -> Experiment:
        """Return an experiment with the plugin; `changes` are arguments of `worlds.build`."""
        kind = self._plugin.kind
        mine: dict[str, Any] = {"seed": self._seed}
        if kind == "accel":
            mine["accel"] = [self._choice, *changes.pop("accel", ())]
        elif kind == "track":
            mine["track"] = dict([self._choice])
        elif kind == "network":
            mine["network"] = {"plugin": self._choice[0], **self._choice[1]}
            changes.pop("network", None)
        else:
            mine[kind] = self._choice
        return build(self._registry, **{**mine, **changes})

    def _run(self, **changes: Any) -> Results:
        return run(self._folder, self.experiment(**changes))

    @cached_property
    def _numbers(self) -> bool:
        return self.experiment().numerics

    @cached_property
    def _simulated(self) -> Results:
        return self._run()

    def laws(self, modes: tuple[str, ...]) -> Laws:
        """Yield the laws of whole runs in the requested modes."""
        if self._plugin.kind == "track":
            for mode in modes:
                yield f"it follows a run to its end, {mode}", partial(self._follows, mode)
            return
        if "sim" in modes:
            yield "two simulations of a run are bit-identical", self._repeats
            yield "sizes alone cause the same traffic as real gradients", self._promises
            yield "the model learns", self._learns
            yield from self._company()
        answers = self.experiment().selection.answers
        simulated_only = answers("geomx_scenario") or answers("geomx_wan_model")
        if "live" in modes and not simulated_only:
            yield "a live run has the predicted traffic, and learns", self._live

    def _follows(self, mode: str) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self._run(mode=mode, network=SMALLEST, iterations=4, evaluate_every=2)
        label = f"{self._plugin.kind} {self._plugin.name}: "
        failed = [str(each.message) for each in told if str(each.message).startswith(label)]
        if failed:
            raise Broken("", "no failure", failed[0].removeprefix(label))

    def _repeats(self) -> None:
        again = self._run()
        for name, value in self._simulated.parameters().items():
            if not np.array_equal(value, again.parameters()[name]):
                raise Broken(f"tensor {name}", "the same values", "different ones: check the seeds")
        for figure in ("seconds", "bytes"):
            expected, got = self._simulated.summary[figure], again.summary[figure]
            if expected != got:
                raise Broken(figure, expected, got)

    def _promises(self) -> None:
        if not self._numbers:
            return
        sizes = self._run(numerics=False).summary["bytes"]
        real = self._simulated.summary["bytes"]
        for kind in ("wan_push", "wan_pull", "lan"):
            if abs(sizes[kind] - real[kind]) > 0.02 * real[kind]:
                raise Broken(kind, f"{sizes[kind]:,} bytes (from layout)", f"{real[kind]:,}")

    def _learns(self) -> None:
        if not self._numbers:
            return
        results = self._run(iterations=LONG, evaluate_every=1)
        first, last = results.evaluations[0]["loss"], results.summary["loss"]["final"]
        if not last < first:
            raise Broken(f"{LONG} iterations", f"a loss below {first:.4g}", f"{last:.4g}")

    def _company(self) -> Laws:
        """Yield laws on composition: with each other plugin it runs, or is refused."""
        kind = self._plugin.kind
        if kind in ("accel", "network", "workload"):
            for other in self._registry.plugins("sync"):
                yield f"with sync={other.name}", self._beside(sync=(other.name, {}))
        if kind in ("accel", "sync"):
            for other in self._registry.plugins("accel"):
                if (other.kind, other.name) != (kind, self._plugin.name):
                    yield f"with accel=[{other.name}]", self._beside(accel=[(other.name, {})])

    def _beside(self, **others: Any) -> Callable[[], None]:
        def law() -> None:
            try:
                results = self._run(iterations=3, evaluate_every=3, **others)
            except ConfigError:
                return  # refused, in a sentence
            for name, value in results.parameters().items():
                if not np.isfinite(value).all():
                    raise Broken(f"tensor {name}", "finite values", value)

        return law

    def _live(self) -> None:
        small = {"network": SMALLEST, "iterations": 4, "evaluate_every": 4}
        simulated = self._run(**small)
        live = self._run(mode="live", **small)
        for kind in ("wan_push", "wan_pull", "lan"):
            expected, got = simulated.summary["bytes"][kind], live.summary["bytes"][kind]
            if abs(got - expected) > 0.1 * expected:
                raise Broken(f"{kind}, live", f"about {expected:,} bytes", f"{got:,}")
        loss = live.summary["loss"]["final"]
        if loss is not None and not math.isfinite(loss):
            raise Broken("live", "a finite loss", loss)


__all__ = ["NETWORK", "Runs"]
