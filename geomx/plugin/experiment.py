"""The experiment and the simulation, as passed to the hooks `geomx_validate` and `geomx_sim`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from geomx.cluster import Cluster
from geomx.options.costs import CodecCosts, Costs
from geomx.options.schema import RuntimeOptions, TcpOptions
from geomx.workload import Workload


class Experiment(Protocol):
    """The experiment that `geomx_validate` checks.

    Attributes:
        mode: ``sim``, ``live`` or ``both``.
        seed: Seed of all random numbers.
        iterations: Local steps per worker.
        evaluate_every: Local steps between evaluations.
        numerics: Whether real gradients are computed.
        cluster: The nodes and their network.
        workload: The model and its data.
        workload_options: The workload's options as given.
        runtime: Options of the live runtime.
        tcp: Options of WAN connections.
        emulate: Emulation of the network in a live run: ``shaper``, ``netns`` or ``none``.
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
    """The simulation, as passed to `geomx_sim` before virtual time starts.

    Attributes:
        env: SimPy's environment. Its clock counts whole nanoseconds; delays are rounded up.
        costs: Execution times of endpoints, (seconds per message, seconds per byte) by kind of
            work: ``send``, ``receive``, ``encode``, ``decode``, ``aggregate`` and ``update``. May
            be changed.
    """

    env: Any
    costs: MutableMapping[str, tuple[float, float]]

    def charge(self, accelerator: str, costs: CodecCosts) -> None:
        """Supply the measured execution times of an accelerator's codecs.

        They apply with ``costs.by_plugin=true``, unless the experiment's costs list the
        accelerator, and replace the general costs of encoding and decoding. The costs of several
        accelerators are added.

        Args:
            accelerator: The plugin's name.
            costs: Seconds per tensor and per byte, and their source.
        """
        ...
