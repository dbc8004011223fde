"""Checks workloads of plugins, and what their models return, against the contracts of both modes.

`Registry.workload` checks every workload that is built (`check_workload`), and simulations, live
workers, measurements and laws get its model from `model_of`. A value that the contract
(`geomx.workload`) does not allow raises a `PluginError` with the plugin, the class, the value and
what is allowed.

What a model does with arrays is checked after its first steps; later steps cost the check of a
number. A simulation reads arrays by `get` and a live worker reads `gradients` as they were at the
beginning, so that a model which keeps its gradients elsewhere would train in one mode only.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError, PluginError, refused_file
from geomx.plugin.calling import one_line
from geomx.plugin.contract_terms import Held, is_real
from geomx.workload import Layer, Model, TensorSpec, Workload

LONGEST_S = 1e6
"""Longest forward or backward pass of a layer; its nanoseconds fit the clocks of both modes."""

_CHECKED_STEPS = 3  # a live worker's first two are of the same batch
_LEAST = {"batch_size": 1, "samples": 0, "iterations": 1, "evaluate_every": 1}
_METHODS = ("step", "get", "set", "evaluate")
_ARRAYS = ("parameters", "gradients")


def check_workload(name: str, workload: Workload) -> None:
    """Check a workload that a plugin built.

    Args:
        name: The plugin's name, as in ``workload=NAME``.
        workload: The workload.

    Raises:
        PluginError: A field has a value that the contract does not allow.
    """
    held = Held(workload, f"workload {name}")
    if workload.name != name:
        raise held.broken("name", f"{name!r}, by which live nodes build it again", workload.name)
    _check_layers(held, workload.layers)
    _check_tensors(held, workload.tensors, len(workload.layers))
    for count, least in _LEAST.items():
        if not _whole(getattr(workload, count), least):
            raise held.broken(count, f"a whole number, {least} or more", getattr(workload, count))
    if held.optimizer("optimizer", workload.optimizer) is None:
        raise held.broken("optimizer", 'a dict such as {"name": "sgd", "learning_rate": 0.1}', None)
    if not isinstance(workload.device, str):
        raise held.broken("device", "cpu, cuda or cuda:N", workload.device)
    held.promise("has_numerics", workload.has_numerics)
    if workload.has_numerics and type(workload).model is Workload.model:
        raise held.broken("has_numerics", "False, as it defines no model(seed)", True)


def _check_layers(held: Held, layers: Any) -> None:
    if not _all(layers, Layer):
        raise held.broken("layers", "geomx.workload.Layer objects, one or more", layers)
    for number, layer in enumerate(layers):
        if not isinstance(layer.name, str):
            raise held.broken(f"layers[{number}].name", "text", layer.name)
        for field in ("forward_s", "backward_s"):
            value = getattr(layer, field)
            if not is_real(value) or not 0 <= float(value) <= LONGEST_S:
                wanted = f"seconds from 0 to {LONGEST_S:,.0f}"
                raise held.broken(f"layers[{number}].{field}", wanted, value)


def _check_tensors(held: Held, tensors: Any, layers: int) -> None:
    if not _all(tensors, TensorSpec):
        raise held.broken("tensors", "geomx.workload.TensorSpec objects, one or more", tensors)
    places: dict[str, int] = {}
    for key, tensor in enumerate(tensors):
        where = f"tensors[{key}]"
        if not isinstance(tensor.name, str) or not tensor.name:
            raise held.broken(f"{where}.name", "text", tensor.name)
        if (first := places.setdefault(tensor.name, key)) != key:
            other = f"a name of its own, which tensors[{first}] does not have"
            raise held.broken(f"{where}.name", other, tensor.name)
        shape = tensor.shape
        if not isinstance(shape, tuple | list) or not all(_whole(each, 1) for each in shape):
            raise held.broken(f"{where}.shape", "whole numbers, 1 or more each", shape)
        if not _whole(tensor.layer, 0) or tensor.layer >= layers:
            wanted = f"the index of a layer, from 0 to {layers - 1}"
            raise held.broken(f"{where}.layer", wanted, tensor.layer)


def _all(objects: Any, kind: type) -> bool:
    listed = isinstance(objects, Sequence) and len(objects) > 0
    return listed and all(isinstance(each, kind) for each in objects)


def _whole(value: Any, least: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and int(value) >= least


def model_of(workload: Workload, seed: int) -> Model:
    """Build the model of a workload, with checks of what it returns.

    Args:
        workload: The workload; it has numerics.
        seed: Seed of the initial parameters.

    Raises:
        ConfigError: Its framework or data is missing.
        PluginError: Building it failed, or it is no `geomx.workload.Model` of the workload.
    """
    return CheckedModel(_called(f"workload {workload.name}", workload, "model", seed), workload)


class CheckedModel:
    """A workload's model, with checks of its results.

    Args:
        model: The plugin's model.
        workload: Its workload.

    Attributes:
        parameters: The model's arrays at the beginning, which it updates in place.
        gradients: Likewise.

    Raises:
        PluginError: An attribute or a method is missing, or the parameters are not those of the
            workload. Methods raise it for invalid results, and where the model's code fails.
    """

    def __init__(self, model: Model, workload: Workload) -> None:
        self._label = label = f"workload {workload.name}"
        self._tensors = workload.tensors
        self._model, self._held = model, Held(model, label)
        absent = [name for name in _ARRAYS if not hasattr(model, name)]
        absent += [name for name in _METHODS if not callable(getattr(model, name, None))]
        if absent:
            wanted = f"a geomx.workload.Model with {', '.join(absent)}"
            raise Held(workload, label).broken("model()", wanted, model)
        for name in _ARRAYS:
            self._count(name)
        self.parameters: Sequence[Any] = model.parameters
        self.gradients: Sequence[Any] = model.gradients
        self._check_arrays("parameters", self.parameters)
        self._unchecked = _CHECKED_STEPS

    def step(self, step: int, worker: int, workers: int) -> float:
        """See `Model.step`."""
        loss = _called(self._label, self._model, "step", step, worker, workers)
        if type(loss) is not float:
            loss = self._number("step()", "the mean loss, a number", loss)
        if self._unchecked:
            self._check_step()
            self._unchecked -= 1
        return loss

    def get(self, arrays: Sequence[Any], key: int) -> NDArray[np.float32]:
        """See `Model.get`."""
        try:  # called for every tensor, so without `_called`
            return self._model.get(arrays, key)
        except (Exception, SystemExit) as error:
            _complain(self._label, self._model, "get", error)

    def set(self, key: int, value: NDArray[np.float32]) -> None:
        """See `Model.set`."""
        try:
            self._model.set(key, value)
        except (Exception, SystemExit) as error:
            _complain(self._label, self._model, "set", error)

    def evaluate(self, parameters: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
        """See `Model.evaluate`."""
        answer = _called(self._label, self._model, "evaluate", parameters)
        wanted = "(accuracy, mean loss), two numbers"
        if not isinstance(answer, Sequence | np.ndarray) or len(answer) != 2:
            raise self._held.broken("evaluate()", wanted, answer)
        accuracy, loss = (self._number("evaluate()", wanted, each) for each in answer)
        if accuracy < 0 or accuracy > 1:
            raise self._held.broken("evaluate()[0]", "the accuracy, from 0 to 1", accuracy)
        return accuracy, loss

    def _check_step(self) -> None:
        """Check the gradients' types, and that the arrays of the beginning have their values."""
        if self._unchecked == _CHECKED_STEPS:
            self._check_arrays("gradients", self.gradients)
        for name in _ARRAYS:
            now, held = getattr(self._model, name), getattr(self, name)
            self._count(name)
            for key in range(len(self._tensors) if now is not held else 0):
                if not np.array_equal(self.get(now, key), self.get(held, key), equal_nan=True):
                    wanted = f"the arrays of the beginning ({name}[{key}][...] = values)"
                    raise self._held.broken(name, wanted, "other arrays")

    def _count(self, name: str) -> None:
        """Check that there is an array for each tensor."""
        arrays, count = getattr(self._model, name), len(self._tensors)
        found = len(arrays) if isinstance(arrays, Sized) else arrays
        if found != count:
            raise self._held.broken(name, f"{count} arrays, one for each tensor", found)

    def _check_arrays(self, name: str, arrays: Sequence[Any]) -> None:
        """Check what `get` returns of `arrays`."""
        for key, tensor in enumerate(self._tensors):
            value: Any = self.get(arrays, key)
            which = f"get({name}, {key})"
            shape = tuple(tensor.shape)
            right = isinstance(value, np.ndarray) and value.dtype == np.float32
            if not right or value.shape != shape:
                array = isinstance(value, np.ndarray)
                got = (str(value.dtype), value.shape) if array else value
                raise self._held.broken(which, f"a float32 numpy array of shape {shape}", got)
            if np.may_share_memory(value, self.get(arrays, key)):
                raise self._held.broken(which, "a copy", "the same memory at every call")

    def _number(self, name: str, wanted: str, value: Any) -> float:
        """Return `value` if it is a number, which may be NaN; otherwise raise `PluginError`."""
        try:
            if not isinstance(value, bool | str | bytes):
                return float(value)
        except (TypeError, ValueError):
            pass
        raise self._held.broken(name, wanted, value)


def _called(label: str, owner: object, name: str, *given: Any) -> Any:
    """Call a method of a plugin's object; name the plugin and the place if it fails."""
    try:
        return getattr(owner, name)(*given)
    except (Exception, SystemExit) as error:
        _complain(label, owner, name, error)


def _complain(label: str, owner: object, name: str, error: BaseException) -> NoReturn:
    """Raise what a method of a plugin's object has raised, with its name if it has none."""
    if isinstance(error, GeomxError) or (isinstance(error, OSError) and refused_file(error)):
        raise error
    home = type(owner).__module__
    lines = [
        f" ({Path(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == home
    ]
    what = f"{label}: {type(owner).__name__}.{name}() failed: {one_line(error)}"
    raise PluginError(what + "".join(lines[-1:])) from error
