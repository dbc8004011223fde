"""What is passed to the hooks `geomx_validate`, `geomx_sim` and `geomx_scenario`."""

from __future__ import annotations

from collections.abc import Callable, Generator, MutableMapping
from typing import Any, Protocol

from geomx.cluster import Cluster
from geomx.options.costs import CodecCosts, Costs
from geomx.options.schema import FaultOptions, RuntimeOptions, TcpOptions
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
        faults: Treatment of lost links and nodes.
        tcp: Options of WAN connections.
        emulate: Emulation of the network in a live run: ``shaper``, ``netns`` or ``none``.
        costs: Endpoint costs in simulation.
        optimizers: Names of the optimizers that come with geomx.
        scale_free_optimizer: Name of the optimizer that global servers run on pushed gradients, if
            its steps do not grow with the gradients (Adam and its relatives); None if they run
            another, or none because it runs at the parties or parameters are exchanged.
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
    faults: FaultOptions
    tcp: TcpOptions
    emulate: str
    costs: Costs

    @property
    def optimizers(self) -> tuple[str, ...]:
        """See above."""
        ...

    @property
    def scale_free_optimizer(self) -> str | None:
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

        Raises:
            ValueError: That accelerator is not chosen, or `costs` are no times.
        """
        ...


class World(Protocol):
    """The simulated world, as passed to `geomx_scenario`; it is a `geomx.sim.World`.

    Attributes:
        env: SimPy's environment, in whole nanoseconds.
        wan: The network, a networkx graph that can be read and changed, and that carries transfers.
        nodes: The nodes by name.
        compute: How long steps take.
        events: Typed events.
        random: Random numbers from the experiment's seed.
        experiment: What is run, to be read.
    """

    env: Any
    wan: Any
    nodes: Any
    compute: Any
    events: Any
    random: Any
    experiment: Experiment

    @property
    def now_s(self) -> float:
        """The present time in seconds of the run."""
        ...

    def seconds(self, seconds: float) -> int:
        """Convert seconds to nanoseconds of SimPy's clock."""
        ...

    def process(self, generator: Generator[Any, Any, Any]) -> Any:
        """Start a SimPy process."""
        ...

    def when(self, predicate: Callable[[], Any], every_s: float | None = None) -> Any:
        """Return an event that triggers as soon as a condition holds."""
        ...

    def round(self, tensor: str | None = None) -> int:
        """Return the last round whose values all training workers have received."""
        ...
