"""Events of the simulated world: who hears of them, and processes that wait for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import simpy

from geomx.events import WorldEvent
from geomx.plugin.selection import Selection
from geomx.sim.clock import Clock
from geomx.sim.numbers import function
from geomx.sim.world.calling import called

E = TypeVar("E", bound=WorldEvent)
KINDS = get_args(WorldEvent)


class WorldEvents:
    """Typed events, one dataclass of `geomx.events` for each kind.

    Args:
        env: SimPy's environment.
        wanted: Called with a kind whenever it gets its first observer, or the first one again.
        selection: The plugins of the run, for errors of observers.
    """

    def __init__(self, env: Clock, wanted: Callable[[type], None], selection: Selection) -> None:
        self._env, self._wanted, self._selection = env, wanted, selection
        self._observers: dict[type, list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[E], observer: Callable[[E], None]) -> None:
        """Call a function with every event of a kind from now on.

        Args:
            kind: ``StepEnded``, ``ValueArrived``, ``EdgeChanged``, ``TransferEnded`` or
                ``NodeActed``, from `geomx.events`.
            observer: A function of the event.

        Raises:
            ValueError: There is no such kind.
        """
        function("observer", observer, "of the event")
        if not isinstance(kind, type) or kind not in KINDS:
            names = ", ".join(each.__name__ for each in KINDS)
            raise ValueError(f"kind={kind!r}: must be a class of geomx.events: {names}")
        if not self._observers.get(kind):
            self._wanted(kind)
        self._observers.setdefault(kind, []).append(observer)

    def next(self, kind: type[E], where: Callable[[E], bool] | None = None) -> simpy.Event:
        """Return a SimPy event that triggers with the next event of a kind; its value is that.

        Args:
            kind: As of `subscribe`.
            where: Which events count; None: all.

        Raises:
            ValueError: There is no such kind.
        """
        if where is not None:
            function("where", where, "of the event")
        waiting = self._env.event()

        def look(event: E) -> None:
            if not waiting.triggered and (where is None or self._call(where, event)):
                self._observers[kind].remove(look)
                waiting.succeed(event)

        self.subscribe(kind, look)
        return waiting

    def observed(self, kind: type) -> bool:
        """Return whether events of a kind have to be made."""
        return bool(self._observers.get(kind))

    def publish(self, event: WorldEvent) -> None:
        """Call the observers of an event's kind; for the simulation."""
        for observer in tuple(self._observers.get(type(event), ())):
            self._call(observer, event)

    def _call(self, function: Callable[[Any], Any], event: WorldEvent) -> Any:
        return called(self._selection, "observer of world.events", function, event)
