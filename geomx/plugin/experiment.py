"""An experiment as plugins see it, when they are asked whether they can take part."""

from __future__ import annotations

from typing import Any, Protocol

from geomx.cluster import Cluster
from geomx.options.costs import Costs
from geomx.options.schema import RuntimeOptions, TcpOptions
from geomx.workload import Workload


class Experiment(Protocol):
    """What `geomx_validate` may look at.

    Attributes:
        mode: ``sim``, ``live`` or ``both``.
        seed: Seeds everything that draws.
        iterations: Local steps per worker.
        evaluate_every: Local steps between evaluations.
        numerics: Whether real gradients are computed.
        cluster: Who takes part, and the network.
        workload: What is trained.
        workload_options: The workload's options as given.
        runtime: Options of the live runtime.
        tcp: Options of WAN connections.
        emulate: What makes the network's links in a live run: ``shaper``, ``netns`` or ``none``.
        costs: Endpoint costs in simulation.
    """

    mode: str
    seed: int
    iterations: int
    evaluate_every: int
    numerics: bool
    cluster: Cluster
    workload: Workload
    workload_options: dict[str, Any]
    runtime: RuntimeOptions
    tcp: TcpOptions
    emulate: str
    costs: Costs
