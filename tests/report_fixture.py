"""A synthetic run for tests of the files and reports of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from geomx.pages.page import render
from geomx.results.recorder import Recorder
from geomx.results.results import Results


def header(parties: int = 2, workers: int = 2, **changes: Any) -> dict[str, Any]:
    """Return the part of a summary that is known before the run."""
    return {
        "schema": 1,
        "geomx": "0.1.0",
        "mode": "sim",
        "seed": 0,
        "sync": {"name": "hfa", "k1": 2, "k2": 2},
        "accel": [{"name": "dgt", "k": 0.6}, {"name": "p3", "slice": 50000}],
        "network": {
            "name": "two-parties",
            "parties": parties,
            "workers": parties * workers,
            "global_servers": 1,
        },
        "workload": {
            "name": "digits",
            "tensors": 10,
            "elements": 178762,
            "bytes": 715048,
            "samples": 1437,
        },
        "iterations": 20,
        "words": ["+sync=hfa", "+accel=[dgt,p3]"],
    } | changes


def graph(parties: int = 2, workers: int = 2) -> nx.DiGraph:
    """Return the graph of a short network file: sites with access links around a hub."""
    result = nx.DiGraph()
    sites = ["hub", *site_names(parties)]
    for index, site in enumerate(sites):
        hosts = {"server": "server"} | {f"worker{i}": "worker" for i in range(workers)}
        if site == "hub":
            hosts = {"global_server0": "global_server", "scheduler": "scheduler"}
        result.add_node(site, kind="router", party=site)
        result.add_node(f"{site}/wan", kind="router", party=site)
        for host, kind in hosts.items():
            result.add_node(f"{site}/{host}", kind=kind, party=site, speed=1.0)
            for edge in ((f"{site}/{host}", site), (site, f"{site}/{host}")):
                result.add_edge(*edge, bandwidth_mbps=10000.0, delay_ms=0.05, loss=0.0)
        rate = 1000.0 if site == "hub" else 100.0 / (1 + index % 3)
        result.add_edge(site, f"{site}/wan", bandwidth_mbps=rate, delay_ms=0.0, loss=0.0)
        result.add_edge(f"{site}/wan", site, bandwidth_mbps=2 * rate, delay_ms=0.0, loss=0.0)
    for a in sites:
        for b in sites:
            if a != b:
                unlimited = float("inf")
                edge = {"bandwidth_mbps": unlimited, "delay_ms": 30.0, "loss": 0.0}
                result.add_edge(f"{a}/wan", f"{b}/wan", **edge)
    return result


def site_names(parties: int) -> list[str]:
    """Return the names of parties."""
    known = ["beijing", "chengdu", "virginia", "frankfurt", "sydney"]
    return (known + [f"site{i}" for i in range(5, parties)])[:parties]


def record(
    recorder: Recorder,
    *,
    parties: int = 2,
    workers: int = 2,
    iterations: int = 20,
    numerics: bool = True,
    seed: int = 0,
) -> tuple[float, int]:
    """Record a run except its end; return its seconds and rounds."""
    random = np.random.default_rng(seed)
    recorder.network(graph(parties, workers))
    hub, now, loss = "hub/global_server0", 0.0, 2.3
    layers = ("conv0", "conv1", "dense0", "dense1", "dense2")
    for iteration in range(iterations):
        synchronises = iteration % 2 == 1
        longest = 0.0
        loss *= 0.9
        for site in site_names(parties):
            server = f"{site}/server"
            for index in range(workers):
                name = f"{site}/worker{index}"
                compute = 0.11 + 0.02 * index + 0.01 * random.random()
                end = now + compute + (0.4 if synchronises else 0.06)
                longest = max(longest, end)
                for step, layer in enumerate(layers):
                    begin = now + compute * step / len(layers)
                    duration = compute / len(layers)
                    recorder.span(name, site, f"forward {layer}", "compute", begin, duration)
                    args = {"key": step, "round": iteration, "bytes": 143000}
                    sent = f"push to {server}", "send"
                    recorder.span(name, site, *sent, begin + 0.03, 0.02, **args)
                wait = end - now - compute
                recorder.span(name, site, "wait", "wait", now + compute, wait)
                noise = 0.1 * random.random()
                recorder.iteration(
                    name, site, iteration, now, compute, wait, end,
                    loss + noise if numerics else None, 32,
                )  # fmt: skip
            done = now + 0.14
            recorder.span(server, site, "aggregate", "aggregate", done, 0.012)
            if synchronises:
                recorder.span(server, site, "encode dense0", "encode", done + 0.012, 0.008)
                args = {"key": 2, "round": iteration // 2}
                recorder.span(server, site, f"push to {hub}", "send", done + 0.02, 0.12, **args)
                recorder.span(hub, "hub", f"value to {server}", "send", done + 0.18, 0.1, **args)
                recorder.counter(f"{site} → hub", done + 0.02, 92.0)
                recorder.counter(f"{site} → hub", done + 0.14, 0.0)
        if synchronises:
            recorder.span(hub, "hub", "aggregate", "aggregate", now + 0.29, 0.02)
            recorder.span(hub, "hub", "update", "update", now + 0.31, 0.01)
        now = longest
        if numerics and iteration % 4 == 3:
            recorder.evaluation(now, iteration, 1 - 0.9 * 0.88**iteration, loss)
    rounds = iterations // 2
    for position, site in enumerate(site_names(parties)):
        server, size = f"{site}/server", 715048 * rounds
        busy = min(now, size * 8 / (50e6 / (1 + position % 3)))
        recorder.link(server, hub, "wan", "push", size, 17 * rounds, busy)
        recorder.link(hub, server, "wan", "pull", size // 2, 9 * rounds, busy / 3)
        recorder.link(server, hub, "wan", "control", 640, 10, 0.0)
        for index in range(workers):
            name = f"{site}/worker{index}"
            recorder.link(name, server, "lan", "push", size * 2, 170, 0.05)
            recorder.link(server, name, "lan", "pull", size * 2, 170, 0.05)
    if numerics:
        recorder.parameters(
            {
                "conv0_weight": random.normal(size=(16, 1, 5, 5)).astype(np.float32),
                "dense2_bias": random.normal(size=10).astype(np.float32),
            }
        )
    return now, rounds


def run(directory: Path, seed: int = 0, **changes: Any) -> Results:
    """Record a complete run."""
    shape = {key: changes[key] for key in ("parties", "workers") if key in changes}
    recorder = Recorder(directory, header(**shape, seed=seed), render=render)
    seconds, rounds = record(recorder, seed=seed, **changes)
    return recorder.finish(seconds, rounds, wall_seconds=1.5)
