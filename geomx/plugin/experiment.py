"""An experiment as plugins see it, when they are asked whether they can take part."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from geomx.cluster import Cluster
from geomx.options.costs import CodecCosts, Costs
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
        cluster: The nodes, and the network that joins them.
        workload: What is trained.
        workload_options: The workload's options as given.
        runtime: Options of the live runtime.
        tcp: Options of WAN connections.
        emulate: What makes the network's links in a live run: ``shaper``, ``netns`` or ``none``.
        costs: Endpoint costs in simulation.
        optimizers: Names of the optimizers that come with geomx.
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

    @property
    def optimizers(self) -> tuple[str, ...]:
        """See above."""
        ...


class Simulation(Protocol):
    """What `geomx_sim` is given, before virtual time starts.

    Attributes:
        env: SimPy's environment. Its clock counts whole nanoseconds; delays are rounded up to one.
        costs: What endpoints take, in seconds per message and per byte, by kind of work: ``send``,
            ``receive``, ``encode``, ``decode``, ``aggregate`` and ``update``; may be changed.
    """

    env: Any
    costs: MutableMapping[str, tuple[float, float]]

    def charge(self, accelerator: str, costs: CodecCosts) -> None:
        """Bring what an accelerator's codecs take, measured.

        It counts with ``costs.by_plugin=true``, where the experiment's costs do not list the
        accelerator, and then takes the place of the general figures; those of several add up.

        Args:
            accelerator: The plugin's name.
            costs: Seconds per tensor and per byte, and where they were measured.
        """
        ...
