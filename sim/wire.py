"""Models of the network that others bring, between the native fabric and SimPy.

The fabric leaves the progress of messages to a `geomx.WanModel`: it notes what happens as calls for
the model, which `Wire` makes in their order, and goes on when the model reports.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, PluginError
from geomx.experiment.experiment import Experiment
from geomx.experiment.validation import FLUID, REFERENCE, WAN_FUNCTION, check_wan
from geomx.plugin.wan import WanConnection, WanEdge, WanModel
from geomx.scenario.places import Edge
from geomx.scenario.programs import function_of
from geomx.sim import numbers
from geomx.sim.clock import Clock
from geomx.sim.reference.model import ReferenceModel
from geomx.sim.world.calling import called
from geomx.training.pace import NS


def wan_model(experiment: Experiment) -> WanModel | None:
    """Return the model of the network that replaces the fluid one.

    Args:
        experiment: The experiment.

    Returns:
        The model of a plugin or of ``sim.wan``; None: the fluid one.

    Raises:
        ConfigError: ``sim.wan`` is none, or a plugin has one besides.
        PluginError: A file's function returned something else.
    """
    chosen, model = experiment.sim.wan, experiment.selection.wan_model()
    if chosen == FLUID:
        return model
    if model is not None:
        whose = " and ".join(experiment.selection.labelled_by("geomx_wan_model"))
        raise ConfigError("sim.wan", chosen, f"{whose} decides it too; leave one of them out")
    if chosen == REFERENCE:
        return ReferenceModel()
    check_wan(chosen)
    function = function_of("sim.wan", chosen, WAN_FUNCTION, f"{WAN_FUNCTION}()")
    made = called(experiment.selection, f"sim.wan={chosen}:", function)
    if not isinstance(made, WanModel):
        raise PluginError(
            f"sim.wan={chosen}: {WAN_FUNCTION} returned {made!r}, not a geomx.WanModel"
        )
    return made


def delegate(experiment: Experiment, fabric: _core.Fabric) -> Callable[..., Wire | None]:
    """Let a fabric leave messages to the experiment's own model of the network, if it has one.

    Args:
        experiment: The experiment.
        fabric: The fabric, before it is built.

    Returns:
        A function of the other arguments of `Wire`, to be called when the fabric has been built. It
        returns None for the fluid model.
    """
    model = wan_model(experiment)
    if model is None:
        return lambda *arguments: None
    call = partial(called, experiment.selection, "WAN model")
    return partial(Wire, model, _core.FabricModel(fabric), experiment.fifo, call)


def is_fluid(experiment: Experiment) -> bool:
    """Return whether the network of an experiment is the native fluid model."""
    return experiment.sim.wan == FLUID and not experiment.selection.answers("geomx_wan_model")


class Wire:
    """What a model reports to; see `geomx.plugin.wan.Wire`.

    Args:
        model: The model.
        fabric: The fabric, as far as it leaves messages to a model; it has been built.
        fifo: Whether edges are FIFO queues.
        call: Calls a function of the model with its arguments, and names it if it fails.
        env: SimPy's environment.
        nodes: The nodes by id.
        ids: Numbers of the edges in the fabric.

    Attributes:
        edges: All edges of the network, by number.
        fifo: Whether edges are FIFO queues.
        under_way: The number of messages whose end the model has yet to report.
    """

    def __init__(
        self,
        model: WanModel,
        fabric: _core.FabricModel,
        fifo: bool,
        call: Callable[..., Any],
        env: Clock,
        nodes: tuple[NodeSpec, ...],
        ids: Mapping[Edge, int],
    ) -> None:
        self.env, self.fifo, self._ask = env, fifo, call
        self._model, self._fabric, self._nodes = model, fabric, nodes
        ends = sorted((number, edge) for edge, number in ids.items())
        self.edges = tuple(WanEdge(number, *edge, math.inf, 0.0) for number, edge in ends)
        for edge in self.edges:
            self._read_edge(edge)
        self._connections: dict[int, WanConnection] = {}
        self._calls: deque[tuple[str, int, float]] = deque()
        self._calling = False
        self.under_way = 0
        fabric.take_calls()  # what has led to the present state
        call(model.begin, self)

    # ---- from the simulation ----

    def pass_on(self) -> None:
        """Make the calls that the fabric has noted, and those that follow from them."""
        self._calls.extend(self._fabric.take_calls())
        if self._calling:
            return
        self._calling = True
        try:
            while self._calls:
                self._call(*self._calls.popleft())
        finally:
            self._calling = False

    def _call(self, kind: str, number: int, size_bytes: float) -> None:
        if kind == "edge":
            self._read_edge(self.edges[number])
            self._ask(self._model.edge_changed, self.edges[number])
        elif kind == "new":
            self._connections.pop(number, None)
        elif kind == "start":
            if number not in self._connections:
                self._connections[number] = self._read_connection(number)
            self.under_way += 1
            self._ask(self._model.start, self._connections[number], size_bytes)
        elif number in self._connections:  # others have not sent anything yet
            known = self._connections[number]
            if kind == "cancelled":
                self.under_way -= 1
                self._ask(self._model.cancelled, known)
                return
            vars(known).update(vars(self._read_connection(number)))
            self._ask(self._model.connection_changed, known)

    def _read_edge(self, edge: WanEdge) -> None:
        edge.bytes_per_s, delay_ns = self._fabric.edge(edge.number)
        edge.delay_s = delay_ns / NS

    def _read_connection(self, number: int) -> WanConnection:
        kind, ends, path, back, rtt_ns, *others = self._fabric.connection(number)
        edges = tuple(self.edges[edge] for edge in path)
        names = [self._nodes[node].name for node in ends]
        if kind == "transfer":
            names = [edges[0].source, edges[-1].target] if edges else ["", ""]
        source, target = names
        way_back = tuple(self.edges[edge] for edge in back)
        return WanConnection(number, source, target, kind, edges, way_back, rtt_ns / NS, *others)

    # ---- from the model ----

    def left(self, connection: WanConnection, *, arrives: bool = True, lost: bool = False) -> None:
        """See `geomx.plugin.wan.Wire.left`."""
        self._calls.extend(self._fabric.take_calls())
        for call in self._calls:
            if call[:2] == ("cancelled", connection.number):  # at the very instant of its end
                self._calls.remove(call)
                self.under_way -= 1
                return self.pass_on()
        try:
            self._fabric.left(connection.number, arrives, lost, self.env.now)
        except RuntimeError as error:
            whose = f"{type(self._model).__name__}: wire.left of the connection "
            whose += f"{connection.source} -> {connection.target}"
            remedy = "the model must call it once for each message that start has told of"
            raise PluginError(f"{whose} failed: {error}; {remedy}") from error
        self.under_way -= arrives or lost
        return self.pass_on()

    def arrived(self, connection: WanConnection) -> None:
        """See `geomx.plugin.wan.Wire.arrived`."""
        self._fabric.arrived(connection.number, self.env.now)
        self.under_way -= 1

    def rate(self, connection: WanConnection, bytes_per_s: float) -> None:
        """See `geomx.plugin.wan.Wire.rate`."""
        rate = numbers.number("bytes_per_s", bytes_per_s, lambda given: given >= 0, "0 or more")
        self._fabric.set_rate(connection.number, rate, self.env.now)
