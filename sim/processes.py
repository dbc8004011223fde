"""Plugins' SimPy processes that fail or never let time pass: which one it is, in a sentence."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import simpy

from geomx.errors import GeomxError, PluginError
from geomx.plugin.calling import one_line
from geomx.plugin.watchdog import Look
from geomx.sim.standstill import standstill
from geomx.sim.worker import SimulatedWorker
from geomx.training.pace import NS

if TYPE_CHECKING:
    from geomx.sim.simulation import Simulation

_STANDS_STILL = "the workers wait, and only plugins' processes go on"
_OURS = ("geomx.sim.simulation", "geomx.sim.worker")


class Instant(Look):
    """One instant of virtual time, as long as geomx itself does nothing in it.

    Likewise a standstill in which plugins' processes still let time pass.

    Gradients may be computed, and the network may be solved, at one instant for however long that
    takes. What processes and callbacks of plugins do at one instant is limited as a call is.

    Args:
        simulation: The world.
        limit_s: Seconds of real time.
    """

    def __init__(self, simulation: Simulation, limit_s: float) -> None:
        super().__init__(limit_s)
        self._simulation = simulation
        self._seen: Any = None  # at work at this instant

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """The instant, in nanoseconds, or that all wait; None while geomx's own code is at work."""
        if self._simulation.idle:
            return _STANDS_STILL
        simulation, called = self._simulation, None
        base = type(simulation)._go.__code__
        while frame is not None and frame.f_code is not base:
            if frame.f_globals.get("__name__") in _OURS:
                return None
            called = frame if simulation.experiment.selection.owner(frame) else called
            frame = frame.f_back
        self._seen = simulation.env.active_process or called or _next(simulation) or self._seen
        return simulation.env.now

    def sentence(self, lasted_s: float) -> tuple[str, str]:
        """See `Look.sentence`."""
        if self._simulation.idle:
            return "the simulation", standstill(self._simulation)
        now_s = self._simulation.env.now / NS
        return _name(self._seen, self._simulation), (
            f"has let no virtual time pass since {now_s:.9g} s of the run for {lasted_s:.1f} s: "
            "it loops, or waits for delays of 0 only; "
            f"runtime.failure_timeout_s={self.limit_s:g} is the most that one instant may take"
        )


def failure(error: Exception, simulation: Simulation) -> Exception:
    """What came out of SimPy's loop, as an error that names the process it came out of.

    SimPy raises a copy of what a process raised, which knows nothing of where that was, and a
    `RuntimeError` of its own where a process yields what is no event.
    """
    process, origin = _origin(error)
    blamed = simulation.experiment.selection.blamed(origin)
    if isinstance(origin, GeomxError) or blamed is not None:
        return blamed if blamed is not None and not isinstance(origin, GeomxError) else origin
    if process is None or _is_worker(process):
        return error
    said = one_line(origin) if origin is not error else str(error).strip().splitlines()[-1]
    return PluginError(f"{_name(process, simulation)} failed: {said}")


def _origin(error: Exception) -> tuple[simpy.Process | None, Exception]:
    """The process that failed, if one did, and what it raised."""
    process, origin = None, error
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is simpy.Environment.step.__code__:
            event = frame.f_locals.get("event")
            if isinstance(event, simpy.Process) and isinstance(event._value, Exception):
                process, origin = event, event._value
        elif frame.f_code is simpy.Process._resume.__code__:
            process = frame.f_locals["self"]
    cause = origin.__cause__
    while isinstance(cause, type(origin)) and cause.args == origin.args:  # it waited for another
        origin, cause = cause, cause.__cause__
    return process, origin


def _next(simulation: Simulation) -> Any:
    """The process, or the plugin's callback, that the next event of this instant will call."""
    head = simulation.env._queue[:1]
    calls = head[0][-1].callbacks if head and head[0][0] == simulation.env.now else None
    called = calls[0] if calls else None
    owner = getattr(called, "__self__", None)
    if owner is simulation:
        return None
    return owner if isinstance(owner, simpy.Process) else called


def _is_worker(process: simpy.Process) -> bool:
    return getattr(process._generator, "gi_code", None) is SimulatedWorker.run.__code__


def _name(what: Any, simulation: Simulation) -> str:
    """A process or a callback, with its plugin where that can be told, for errors."""
    is_process = isinstance(what, simpy.Process)
    function = what._generator if is_process else what
    kind = "SimPy process " if is_process else "SimPy callback "
    frame = what if isinstance(what, FrameType) else getattr(function, "gi_frame", None)
    if frame is not None:
        return simulation.experiment.selection.named(frame, kind=kind)
    code = getattr(function, "gi_code", None) or getattr(function, "__code__", None)
    where = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
    built = simulation.experiment.selection.author(code) if code else None
    whose = f"{built.label}: " if built else ""
    return f"{whose}{kind}{getattr(function, '__qualname__', repr(function))}{where}"
