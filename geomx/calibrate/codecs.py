"""Times of the accelerators' codecs on this machine, measured on the codecs themselves.

Each installed accelerator supplies the codecs that it would use towards a global server, with the
experiment's options if it is part of the experiment and with its defaults otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from geomx import _core
from geomx.calibrate.endpoints import tensors_of, timings
from geomx.calibrate.fit import Sample, fit
from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import part
from geomx.plugin.registration import Choice
from geomx.plugin.registry import Registry

ELEMENTS = (64, 4096, 65536, 524288)
"""Sizes of tensors, in float32 values."""

SETTLED = 1000  # a round number beyond any warm-up


def measure(
    experiment: Experiment, repeats: int, advance: Callable[[], None]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Measure the codecs of all installed accelerators, under each of their names.

    Those that do not encode, or cannot take part in `experiment`, are left out.

    Args:
        experiment: Supplies the network and the options of its accelerators.
        repeats: Number of times that each size is encoded and decoded, after one unmeasured pass.
        advance: Called after each accelerator, once for all of its names.

    Returns:
        Values of `geomx.options.costs.CodecCosts` by accelerator, in seconds, and the relative
        spread of each, by dotted name.
    """
    registry = Registry.discover()
    chosen = dict(experiment.selection.accel)
    costs: dict[str, dict[str, float]] = {}
    spread: dict[str, float] = {}
    for plugin in registry.plugins("accel", variants=True):
        handles = _handles(registry, (plugin.name, chosen.get(plugin.name, {})), experiment)
        if handles:
            figures, spreads = _time(handles, repeats)
            costs[plugin.name] = figures
            spread |= {f"codecs.{plugin.name}.{name}": value for name, value in spreads.items()}
        if not plugin.variant_of:
            advance()
    return costs, spread


def _handles(registry: Registry, accel: Choice, experiment: Experiment) -> list[_core.Codec]:
    cluster = experiment.cluster
    link = cluster.link(cluster.parties[0].server, cluster.global_servers[0], "push")
    # Sums come back to accelerators that ask for them; the others encode the same in any case.
    links = [
        replace(link, exchange=exchange, summed=True) for exchange in ("gradients", "parameters")
    ]
    try:
        answers = [registry.select(None, [accel]).codecs(link) for link in links]
        return next(([part(codec, "codec") for codec in each] for each in answers if each), [])
    except GeomxError:
        return []


def _time(handles: list[_core.Codec], repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    generator = np.random.default_rng(0)
    encoding, decoding = [], []
    for elements in ELEMENTS:
        values = generator.standard_normal(elements).astype(np.float32)
        senders, receivers = (
            [_core.CodecChain(handles, elements) for _ in range(tensors_of(elements))]
            for _ in range(2)
        )
        encode_all = [partial(sender.encode, values, SETTLED) for sender in senders]
        encoding.append(Sample(_counts("encode", elements), timings(encode_all, repeats)))
        ((first, rows, payload),) = senders[0].encode(values, SETTLED)
        decode_all = [
            partial(receiver.decode, payload, first, rows, rows, SETTLED) for receiver in receivers
        ]
        decoding.append(Sample(_counts("decode", elements), timings(decode_all, repeats)))
    (encode, spread), (decode_costs, decode_spread) = fit(encoding), fit(decoding)
    return encode | decode_costs, spread | decode_spread


def _counts(work: str, elements: int) -> dict[str, float]:
    return {f"{work}_message_s": 1.0, f"{work}_byte_s": 4.0 * elements}


def general(costs: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the costs of codecs that are not listed: the geometric mean of the listed ones.

    An accelerator with several names counts once.

    Args:
        costs: Values of `geomx.options.costs.CodecCosts` by accelerator, in seconds.
    """
    figures = [f"{work}_{per}_s" for work in ("encode", "decode") for per in ("message", "byte")]
    variants = {each.name for each in Registry.discover().plugins("accel", True) if each.variant_of}
    result = {}
    for figure in figures:
        known = [
            accel[figure]
            for name, accel in costs.items()
            if accel[figure] > 0 and name not in variants
        ]
        if known:
            result[figure] = math.exp(sum(map(math.log, known)) / len(known))
    return result
