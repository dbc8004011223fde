"""Times of a workload's step on this machine, layer by layer, as in live workers.

As many processes as the experiment has workers compute at the same time, each on batches of its
own, sharing the cores as live workers would. The forward pass ends when the loss is known. A
layer's gradients exist when they can be read; backward visits the layers in reverse, so that a
layer's backward time is the time since the layer after it. A framework does not show how the
forward pass is divided among layers, so it is divided in proportion to the workload's nominal
times.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from threading import BrokenBarrierError
from typing import Any

import numpy as np

from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.options.costs import LayerTimes
from geomx.plugin.registration import Choice
from geomx.plugin.registry import Registry
from geomx.plugin.workloads import model_of

UNCOUNTED = 3  # initial steps, in which the framework prepares itself
START_TIMEOUT_S = 120.0

Step = tuple[float, list[float]]
"""Seconds of the forward pass, and of each layer's backward pass in forward order."""


def measure(
    experiment: Experiment, seconds: float, advance: Callable[[], None]
) -> dict[str, Any] | None:
    """Measure the layers of the experiment's workload.

    Args:
        experiment: Supplies the workload and the number of workers.
        seconds: Duration of the measurement.
        advance: Called when each process is done.

    Returns:
        Values of `geomx.options.costs.LayerTimes`, in seconds; None for a workload without
        gradients.

    Raises:
        GeomxError: A process failed.
    """
    workload = experiment.workload
    if not workload.has_numerics:
        return None
    processes = len(experiment.cluster.workers)
    choice = (workload.name, dict(experiment.workload_options))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    started = []
    for rank in range(processes):
        here, there = context.Pipe(duplex=False)
        place = (choice, experiment.seed, rank, processes)
        process = context.Process(target=_compute, args=(place, seconds, barrier, there))
        process.daemon = True
        process.start()
        there.close()
        started.append((process, here))
    steps: list[Step] = []
    broken = False
    try:
        for _, pipe in started:
            try:
                answer = pipe.recv()
            except EOFError as error:
                raise GeomxError("a process that measured the workload's layers ended") from error
            if answer is None:
                broken = True
                continue
            if isinstance(answer, str):
                raise GeomxError(f"the workload's layers could not be measured: {answer}")
            steps += answer
            advance()
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    if broken:
        raise GeomxError(
            f"the workload's layers could not be measured: {processes} processes were not ready to "
            f"compute at the same time within {START_TIMEOUT_S:g} s"
        )
    return asdict(summary(steps, workload.layers, workload.batch_size, processes))


def summary(
    steps: Sequence[Step], layers: Sequence[Any], batch_size: int, processes: int
) -> LayerTimes:
    """Summarise the times of many steps.

    Medians of single layers do not add up to the median step, which is what predicts a run: they
    are scaled so that they do.

    Args:
        steps: Measured steps of all processes.
        layers: The workload's layers; their nominal forward times divide the forward pass.
        batch_size: Samples per step.
        processes: Number of processes that computed at the same time.

    Returns:
        Forward and backward time of each layer, in seconds.
    """
    forward = float(np.median([step[0] for step in steps]))
    backward = np.median([step[1] for step in steps], axis=0)
    whole = [sum(step[1]) for step in steps]
    backward *= np.median(whole) / max(backward.sum(), 1e-12)
    nominal = np.array([layer.forward_s for layer in layers])
    shares = nominal / nominal.sum() if nominal.sum() > 0 else np.full(len(layers), 1 / len(layers))
    totals = [step[0] + sum(step[1]) for step in steps]
    low, middle, high = np.quantile(totals, (0.25, 0.5, 0.75))
    return LayerTimes(
        batch_size=batch_size,
        processes=processes,
        layers=[layer.name for layer in layers],
        forward_s=(forward * shares).tolist(),
        backward_s=backward.tolist(),
        spread=float((high - low) / 2 / middle),
    )


def _compute(
    place: tuple[Choice, int, int, int], seconds: float, barrier: Any, pipe: Connection
) -> None:
    """Compute steps in a process of its own, and send to `pipe` their times or what went wrong.

    That is None if this process could not begin because another one failed or is late.
    """
    try:
        pipe.send(_steps(*place, seconds, barrier))
    except BrokenBarrierError:
        pipe.send(None)
    except BaseException as error:
        barrier.abort()
        pipe.send(str(error) or type(error).__name__)
    pipe.close()
    os._exit(0)  # frameworks need seconds to tear down


def _steps(
    choice: Choice, seed: int, rank: int, workers: int, seconds: float, barrier: Any
) -> list[Step]:
    workload = Registry.discover().workload(*choice)
    model = model_of(workload, seed)
    keys_of: list[list[int]] = [[] for _ in workload.layers]
    for key, tensor in enumerate(workload.tensors):
        keys_of[tensor.layer].append(key)
    steps: list[Step] = []
    barrier.wait(START_TIMEOUT_S)
    number, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end or number <= UNCOUNTED:
        began = time.perf_counter()
        model.step(number, rank, workers)
        now = time.perf_counter()
        forward, backward = now - began, [0.0] * len(keys_of)
        for layer in reversed(range(len(keys_of))):
            for key in keys_of[layer]:
                model.get(model.gradients, key)
            before, now = now, time.perf_counter()
            backward[layer] = now - before
        if number >= UNCOUNTED:
            steps.append((forward, backward))
        number += 1
    return steps
