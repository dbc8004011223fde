"""A workload from a trace of PyTorch's profiler (Kineto): sizes, times and order of gradients.

The trace must record shapes::

    with torch.profiler.profile(record_shapes=True, schedule=schedule(wait=1, warmup=1, active=5,
                                repeat=1), on_trace_ready=...) as profiler:
        for batch in batches:
            train(batch)
            profiler.step()

Autograd calls ``AccumulateGrad`` once per parameter and backward pass, when its gradient is there.
The function of the backward pass before it has the sequence number of the operation of the forward
pass that used the parameter. The parameters of an operation (its weight and its bias) are a layer:
backward time passes until the gradients of both are there, forward time from the layer's first use
to that of the next.

On a GPU the processor only launches kernels, so a moment of the trace stands for the end of all
kernels that were launched before it.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from geomx.calibrate.json_files import read_json
from geomx.errors import ConfigError

KEY = "trace"
BACKWARD = "autograd::engine::evaluate_function: "
GRADIENT = "torch::autograd::AccumulateGrad"
LAUNCHES = ("cuda_runtime", "cuda_driver")


@dataclass
class Used:
    """The parameters of one operation in one step; times in microseconds.

    Attributes:
        name: The operation, with a number.
        used_us: When it begins in the forward pass.
        shapes: Dimensions of the parameters, in the order of their gradients.
        gradient_us: When the last gradient is there.
    """

    name: str
    used_us: float
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    gradient_us: float = 0.0


@dataclass(frozen=True)
class Step:
    """One step of a trace.

    Attributes:
        layers: In the order of their gradients.
        began_us: Start of the forward pass.
        turned_us: Start of the backward pass.
        other_us: What else the step took: optimizer, data, ...
    """

    layers: list[Used]
    began_us: float
    turned_us: float
    other_us: float


@dataclass
class Trace:
    """The events of a trace that are needed, each list by time.

    Attributes:
        steps: Start and end of steps; empty if the profiler was not told of any.
        operations: Operations of the processor.
        kernels: Launch and end of kernels, of which the end is that of all launched so far.
    """

    steps: list[tuple[float, float]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[tuple[float, float]] = field(default_factory=list)

    def done(self, moment_us: float) -> float:
        """When everything had been computed that was asked for until a moment."""
        at = bisect.bisect(self.kernels, (moment_us, float("inf")))
        return max(moment_us, self.kernels[at - 1][1]) if at else moment_us


def workload_of(path: Path) -> tuple[dict[str, Any], str]:
    """Read a trace.

    Args:
        path: A file of ``export_chrome_trace``, possibly gzipped.

    Returns:
        The content of a file for ``workload=profile``, and a sentence about it.

    Raises:
        ConfigError: It is no such file, has no shapes, or no complete step.
    """
    trace = _read(path)
    whole = [(float("-inf"), float("inf"))]
    steps = [step for span in trace.steps or whole if (step := _step(trace, span, path))]
    if not steps:
        raise ConfigError(KEY, path, "has no complete step: profile training with record_shapes")
    sizes = [tuple(tuple(layer.shapes) for layer in step.layers) for step in steps]
    usual, _ = Counter(sizes).most_common(1)[0]
    steps = [step for step, found in zip(steps, sizes, strict=True) if found == usual]
    layers = _layers(steps)
    shapes = [shape for layer in usual for shape in layer]
    elements = sum(map(math.prod, shapes))
    forward, backward = (
        sum(layer[way] for layer in layers) for way in ("forward_ms", "backward_ms")
    )
    other = median(step.other_us for step in steps) / 1e3
    said = (
        f"{len(shapes)} tensors of {elements:,} elements in {len(layers)} layers; {forward:.3g} ms "
        f"forward and {backward:.3g} ms backward, medians of {len(steps)} steps; not included: "
        f"{other:.3g} ms a step outside of both (data, optimizer)"
    )
    return {"layers": layers}, said


def _layers(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the layers in forward order, with the medians of their times."""
    times = [list(_times(step)) for step in steps]
    layers = []
    for index, used in enumerate(reversed(steps[0].layers)):
        forward, backward = (median(of[index][way] for of in times) / 1e3 for way in (0, 1))
        layer = {"name": used.name, "forward_ms": round(forward, 4)}
        tensors = {f"value{number}": [*shape] for number, shape in enumerate(used.shapes)}
        layers.append(layer | {"backward_ms": round(backward, 4), "tensors": tensors})
    return layers


def _times(step: Step) -> Iterator[tuple[float, float]]:
    """Yield the microseconds forward and backward of each layer, in forward order.

    Gradients come in the reverse order of layers, so a layer counts as used when the first of it
    and all later ones is.
    """
    used, earliest = [], step.turned_us
    for layer in step.layers:
        earliest = min(earliest, layer.used_us)
        used.append(earliest)
    used[-1] = step.began_us
    gradients = [step.turned_us, *(layer.gradient_us for layer in step.layers)]
    for at in reversed(range(len(used))):
        until = used[at - 1] if at else step.turned_us
        yield until - used[at], gradients[at + 1] - gradients[at]


def _step(trace: Trace, span: tuple[float, float], path: Path) -> Step | None:
    """Return what happened in a span of time; None if it has no whole step.

    Raises:
        ConfigError: The trace has no shapes, or a step has several passes.
    """
    inside = [event for event in trace.operations if span[0] <= event["ts"] < span[1]]
    outer = _outermost(inside)
    # Several operations have a sequence number; the last of them is the one that recorded it.
    forward = {
        _sequence(event): outer[id(event)]
        for event in inside
        if not event["name"].startswith(BACKWARD) and not event["args"].get("Fwd thread id")
    }
    forward.pop(None, None)
    layers: list[Used] = []
    turned, number = None, None
    for event in inside:
        name = event["name"]
        if name.startswith(BACKWARD) and not name.endswith(GRADIENT):
            turned, number = turned or event["ts"], _sequence(event)
        elif name == GRADIENT:
            if number not in forward or turned is None:
                return None  # the forward pass lies before the span
            label, began = forward[number]
            if not layers or layers[-1].name != label:
                layers.append(Used(label, trace.done(began)))
            layers[-1].shapes.append(_shape(event, path))
            layers[-1].gradient_us = trace.done(event["ts"] + event["dur"])
    if not layers or turned is None:
        return None
    if any(began > turned for _, began in forward.values()):
        remedy = "has several passes in a step: profile steps of one forward and one backward pass"
        raise ConfigError(KEY, path, remedy)
    first = trace.done(min(began for _, began in forward.values()))
    passes_us = layers[-1].gradient_us - first
    other = max(0.0, span[1] - span[0] - passes_us) if trace.steps else 0.0
    return Step(layers, first, trace.done(turned), other)


def _outermost(operations: Sequence[dict[str, Any]]) -> dict[int, tuple[str, float]]:
    """Return the outermost operation around each, with a number behind its name, and its start."""
    found: dict[int, tuple[str, float]] = {}
    count = Counter[str]()
    around: dict[Any, tuple[float, tuple[str, float]]] = {}  # by thread: its end, and itself
    for event in operations:
        ends, _ = around.get(event["tid"], (float("-inf"), None))
        if event["ts"] >= ends:
            kind = event["name"].rpartition("::")[2]
            count[kind] += 1
            here = f"{kind}{count[kind]}", event["ts"]
            around[event["tid"]] = event["ts"] + event["dur"], here
        found[id(event)] = around[event["tid"]][1]
    return found


def _shape(event: dict[str, Any], path: Path) -> tuple[int, ...]:
    """Return the dimensions of the gradient that an event accumulates."""
    given = event["args"].get("Input Dims")
    if given is None:
        raise ConfigError(KEY, path, "has no shapes: torch.profiler.profile(record_shapes=True)")
    return tuple(given[0]) or (1,)


def _sequence(event: dict[str, Any]) -> int | None:
    number = event["args"].get("Sequence number")
    return int(number) if number is not None else None


def _read(path: Path) -> Trace:
    """Read the events of a trace.

    Raises:
        ConfigError: It is no trace of PyTorch's profiler.
    """
    content = read_json(KEY, path)
    try:
        events = [
            event | {"ts": float(event["ts"]), "dur": float(event["dur"])}
            for event in content["traceEvents"]
            if event.get("ph") == "X" and isinstance(event.get("args", {}), dict)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "is not a trace of torch.profiler: profiler.export_chrome_trace(FILE) writes one"
        raise ConfigError(KEY, path, remedy) from error
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    trace = Trace()
    launched: dict[Any, float] = {}
    kernels = []
    for event in events:
        kind, number = event.get("cat"), event.setdefault("args", {}).get("correlation")
        if kind == "user_annotation" and event["name"].startswith("ProfilerStep#"):
            trace.steps.append((event["ts"], event["ts"] + event["dur"]))
        elif kind == "cpu_op":
            trace.operations.append(event)
        elif kind in LAUNCHES:
            launched[number] = event["ts"]
        elif kind == "kernel":
            kernels.append((number, event["ts"] + event["dur"]))
    ended = 0.0
    for launch, end in sorted(
        (launched[number], end) for number, end in kernels if number in launched
    ):
        ended = max(ended, end)
        trace.kernels.append((launch, ended))
    return trace
