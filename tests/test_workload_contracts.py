"""Workloads of plugins and what their models return: an error that names plugin, class and value,
and what is allowed, from the checks that both modes share."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.errors import ConfigError, PluginError
from geomx.live.spec import Spec
from geomx.plugin.registration import Register
from geomx.plugin.registry import Registry
from geomx.plugin.workloads import model_of
from geomx.testing.worlds import SMALLEST, build, run
from geomx.workload import Layer, TensorSpec, Workload
from geomx.workloads.tiny import TinyConfig, TinyModel, TinyWorkload, tiny

ROOT = Path(__file__).parents[1]
GIVEN = replace(tiny(TinyConfig()), name="mine")
FIRST, SECOND, THIRD = GIVEN.tensors


@dataclass(frozen=True)
class Nothing:
    """No options."""


@dataclass(frozen=True)
class Modelled(TinyWorkload):
    """The small workload with another model."""

    made: Any = None

    def model(self, seed: int) -> Any:
        return self.made(self.tensors, seed) if callable(self.made) else self.made


def registry(workload: Workload) -> Registry:
    """Return the installed plugins and the workload ``mine``."""

    @geomx.hookimpl
    def geomx_register(register: Register) -> None:
        register("workload", "mine", Nothing, lambda config: workload)

    known = Registry.discover()
    known.ask(SimpleNamespace(__name__="stranger", geomx_register=geomx_register))
    return known


def modelled(**members: Any) -> Modelled:
    """Return the workload with a `TinyModel` that has other members."""
    made = type("MyModel", (TinyModel,), members)
    return Modelled(**{each.name: getattr(GIVEN, each.name) for each in fields(GIVEN)}, made=made)


def tensors(**changes: Any) -> dict[str, Any]:
    return {"tensors": (FIRST, replace(SECOND, **changes), THIRD)}


def layers(**changes: Any) -> dict[str, Any]:
    return {"layers": (GIVEN.layers[0], replace(GIVEN.layers[1], **changes))}


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "another name": ({"name": "other"}, "name must be 'mine', by which .* not 'other'"),
    "no layers": ({"layers": ()}, r"layers must be .*Layer objects, one or more, not \(\)"),
    "no layer": ({"layers": [(1.0, 2.0)]}, "layers must be"),
    "no tensors": ({"tensors": ()}, r"tensors must be .*TensorSpec objects, one or more, not \(\)"),
    "nothing": ({"tensors": None}, "tensors must be .*, not None"),
    "one name": (
        tensors(name=FIRST.name),
        r"tensors\[1\].name must be a name of its own, which tensors\[0\] .* not 'hidden.weight'",
    ),
    "empty name": (tensors(name=""), r"tensors\[1\].name must be text, not ''"),
    "no elements": (tensors(shape=(0,)), r"tensors\[1\].shape must be whole .* not \(0,\)"),
    "negative shape": (tensors(shape=(4, -1)), r"tensors\[1\].shape must be .* not \(4, -1\)"),
    "shape of floats": (tensors(shape=(4.0,)), r"tensors\[1\].shape must be .* not \(4.0,\)"),
    "shape of truth": (tensors(shape=(True,)), r"tensors\[1\].shape must be"),
    "a number as shape": (tensors(shape=40), r"tensors\[1\].shape must be .* not 40"),
    "unknown layer": (tensors(layer=2), r"tensors\[1\].layer must be .* from 0 to 1, not 2"),
    "time is NaN": (layers(forward_s=float("nan")), r"layers\[1\].forward_s must be .* not nan"),
    "time below 0": (layers(backward_s=-1e-3), r"layers\[1\].backward_s must be .* not -0.001"),
    "endless": (layers(backward_s=float("inf")), r"layers\[1\].backward_s must be .* not inf"),
    "time as text": (layers(forward_s="1"), r"layers\[1\].forward_s must be seconds .* not '1'"),
    "layer's name": (layers(name=None), r"layers\[1\].name must be text, not None"),
    "batch": ({"batch_size": 0}, "batch_size must be a whole number, 1 or more, not 0"),
    "samples": ({"samples": -1}, "samples must be a whole number, 0 or more, not -1"),
    "iterations": ({"iterations": None}, "iterations must be .*, not None"),
    "evaluations": ({"evaluate_every": 0}, "evaluate_every must be .* 1 or more, not 0"),
    "no optimizer": ({"optimizer": None}, "optimizer must be a dict such as .*, not None"),
    "nameless optimizer": ({"optimizer": {"lr": 1}}, "optimizer.* must be .*dict such as"),
    "device": ({"device": 0}, "device must be cpu, cuda or cuda:N, not 0"),
    "numerics": ({"has_numerics": None}, "has_numerics must be True or False, not None"),
}


@pytest.mark.parametrize(("changes", "sentence"), FIELDS.values(), ids=FIELDS)
def test_an_invalid_workload_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError, match=f"^workload mine: TinyWorkload.{sentence}"):
        registry(replace(GIVEN, **changes)).workload("mine", {})


def test_numerics_need_a_model() -> None:
    bare = Workload(**{each.name: getattr(GIVEN, each.name) for each in fields(Workload)})
    wanted = r"^workload mine: Workload.has_numerics must be False, as it defines no model\(seed\)"
    with pytest.raises(PluginError, match=wanted):
        registry(bare).workload("mine", {})
    assert registry(replace(bare, has_numerics=False)).workload("mine", {}).elements


def test_all_workloads_of_geomx_are_valid() -> None:
    known = Registry.discover()
    for plugin in known.plugins("workload"):
        with contextlib.suppress(ConfigError):  # some need a file
            assert known.workload(plugin.name, {}).name == plugin.name


def test_numbers_of_numpy_are_sent_to_live_nodes() -> None:
    workload = replace(
        GIVEN,
        layers=tuple(Layer(each.name, np.float32(0.5), np.float64(1)) for each in GIVEN.layers),
        tensors=[TensorSpec("all", (np.int64(3),), np.int32(1))],  # type: ignore[arg-type]
        iterations=np.int64(7),  # type: ignore[arg-type]
        evaluate_every=np.int64(2),  # type: ignore[arg-type]
    )
    nothing = {"iterations": None, "evaluate_every": None}
    spec = Spec.of(build(registry(workload), workload=("mine", {}), **nothing))
    assert replace(Spec.from_json(spec.to_json()), cluster=spec.cluster) == spec
    assert spec.tensors == (TensorSpec("all", (3,), 1),)
    assert (spec.iterations, spec.evaluate_every) == (7, 2)


# ---- models


def stepped(**members: Any) -> Any:
    """Return a function that makes three steps of a model with other members."""

    def steps() -> None:
        model = model_of(modelled(**members), 0)
        for step in range(3):
            model.step(step, 0, 1)

    return steps


def evaluated(answer: Any) -> Any:
    model = model_of(modelled(evaluate=lambda self, parameters: answer), 0)
    return lambda: model.evaluate([])


def elsewhere(self: Any, *given: int) -> float:
    loss = TinyModel.step(self, *given)
    self.gradients = [each.copy() for each in self.gradients]
    return loss


def fewer(self: Any, *given: int) -> float:
    loss = TinyModel.step(self, *given)
    self.gradients = self.gradients[:2]
    return loss


def failing(self: Any, *given: int) -> float:
    raise ValueError("no batch")


def got(change: Any) -> dict[str, Any]:
    return {"get": lambda self, arrays, key: change(arrays[key])}


RESULTS: dict[str, tuple[Any, str]] = {
    "loss is None": (stepped(step=lambda *given: None), r"step\(\) must be .* loss.*, not None"),
    "losses": (stepped(step=lambda *given: np.ones(2)), r"step\(\) must be .*array\(\[1., 1.\]\)"),
    "loss is True": (stepped(step=lambda *given: True), r"step\(\) must be .* not True"),
    "step fails": (
        stepped(step=failing),
        r"step\(\) failed: ValueError: no batch \(test_workload_contracts.py:\d+\)$",
    ),
    "get fails": (stepped(get=lambda self, arrays, key: arrays[9]), r"get\(\) failed: IndexError"),
    "set fails": (
        lambda: model_of(modelled(set=failing), 0).set(0, np.zeros((12, 40), np.float32)),
        r"set\(\) failed: ValueError: no batch \(test_workload_contracts.py:\d+\)$",
    ),
    "step takes nothing": (
        stepped(step=lambda self: 0.0),
        r"step\(\) failed: TypeError:",
    ),
    "fewer gradients": (stepped(step=fewer), "gradients must be 3 arrays, one for each .* not 2"),
    "other gradients": (stepped(step=elsewhere), "gradients must be the arrays of the beginning"),
    "no array": (stepped(**got(lambda array: None)), r"get\(parameters, 0\) must be .* not None"),
    "doubles": (
        stepped(**got(lambda array: array.astype("f8"))),
        r"get\(parameters, 0\) must be a float32 numpy array of shape \(12, 40\), not \('float64'",
    ),
    "flat": (stepped(**got(np.ravel)), r"get\(parameters, 0\) .* not \('float32', \(480,\)\)"),
    "no copy": (stepped(**got(lambda array: array)), r"get\(parameters, 0\) must be a copy"),
    "no method": (stepped(step=None), r"model\(\) must be a geomx.workload.Model with step, not"),
    "no evaluation": (evaluated(None), r"evaluate\(\) must be \(accuracy, mean loss\).* not None"),
    "accuracy alone": (evaluated(0.5), r"evaluate\(\) must be \(accuracy, mean loss\).* not 0.5"),
    "text": (evaluated(("0.5", 1.0)), r"evaluate\(\) must be .* not '0.5'"),
    "per cent": (evaluated((87, 1.0)), r"evaluate\(\)\[0\] must be .* from 0 to 1, not 87.0"),
}


@pytest.mark.parametrize(("use", "sentence"), RESULTS.values(), ids=RESULTS)
def test_an_invalid_result_of_a_model_is_refused(use: Any, sentence: str) -> None:
    with pytest.raises(PluginError, match=f"^workload mine: (MyModel|Modelled).{sentence}"):
        use()


def test_a_model_of_another_number_of_tensors_is_refused() -> None:
    workload = replace(modelled(), tensors=GIVEN.tensors, made=lambda t, s: TinyModel(t[:2], s))
    with pytest.raises(PluginError, match=r"TinyModel.parameters must be 3 arrays, .* not 2$"):
        model_of(workload, 0)


def test_no_model_is_refused_and_not_taken_for_sizes_alone() -> None:
    wanted = r"Modelled.model\(\) must be a geomx.workload.Model with parameters, .*, not None$"
    with pytest.raises(PluginError, match=wanted):
        model_of(replace(modelled(), made=None), 0)


def test_errors_of_configuration_in_a_model_are_passed_on() -> None:
    def refuse(*given: Any) -> Any:
        raise ConfigError("workload.path", "x", "has no data")

    with pytest.raises(ConfigError, match=r"^workload.path=x: has no data$"):
        model_of(replace(modelled(), made=refuse), 0)


def test_numbers_of_frameworks_are_losses() -> None:
    for loss in (np.float32(0.5), np.array(0.5), 0):
        step = lambda self, *given, loss=loss: loss  # noqa: E731
        made = model_of(modelled(step=step), 0).step(0, 0, 1)
        assert type(made) is float and made == float(loss)
    assert np.isnan(model_of(modelled(step=lambda *given: float("nan")), 0).step(0, 0, 1))


def test_a_simulation_names_the_workload(tmp_path: Path) -> None:
    broken = modelled(step=lambda *given: None)
    experiment = build(registry(broken), workload=("mine", {}), network=SMALLEST)
    with pytest.raises(PluginError, match=r"^workload mine: MyModel.step\(\) must be"):
        run(tmp_path, experiment)


def test_every_model_is_checked() -> None:
    """Simulation, live workers, measurements and laws ask one function for the model."""
    asks = re.compile(r"\.model\((self\.|spec\.|experiment\.)?seed\)")
    files = [*(ROOT / "geomx").rglob("*.py"), *(ROOT / "sim").rglob("*.py")]
    assert [path for path in files if asks.search(path.read_text(encoding="utf-8"))] == []
