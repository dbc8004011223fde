"""Identification of plugins' SimPy processes that fail, or keep virtual time from advancing."""

from __future__ import annotations

import traceback
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import simpy

from geomx.errors import GeomxError, PluginError
from geomx.limits.watchdog import Look, interrupted
from geomx.scenario.programs import said
from geomx.sim.protocols import Running
from geomx.sim.standstill import standstill
from geomx.training.pace import NS

_STANDS_STILL = "the workers wait, and only plugins' processes run"
_LOOP = ("geomx.", "simpy.")
_OURS = ("geomx.sim.simulation", "geomx.sim.worker", "geomx.sim.script_worker")


class Instant(Look):
    """Limits the real time that plugins spend at one instant of virtual time.

    A standstill during which plugins' processes still let time pass is limited likewise. Computing
    gradients and solving the network may take any time at one instant; processes and callbacks of
    plugins are limited as calls are.

    Args:
        simulation: The simulation.
        limit_s: Limit in seconds of real time.
        base: The function that runs SimPy's loop.
    """

    def __init__(self, simulation: Running, limit_s: float, base: CodeType) -> None:
        super().__init__(limit_s)
        self._base = base
        self._simulation = simulation
        self._seen: Any = None  # active at this instant

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """Return the instant in nanoseconds, or that all wait; None while geomx's own code runs.

        Args:
            thread: The observed thread.
            frame: Its innermost frame.
        """
        if self._simulation.idle:
            return _STANDS_STILL
        simulation, called = self._simulation, None
        while frame is not None and frame.f_code is not self._base:
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
            f"did not advance virtual time beyond {now_s:.9g} s of the run for {lasted_s:.1f} s: "
            "it loops, or waits for delays of 0 only; "
            f"runtime.failure_timeout_s={self.limit_s:g} is the limit of one instant"
        )


def failure(error: BaseException, simulation: Running) -> BaseException:
    """Convert an exception of SimPy's loop to one that names the process that raised it.

    SimPy raises a copy of what a process raised, without its traceback, and a `RuntimeError` of its
    own if a process yields something that is not an event. An interruption of the run stays.

    Args:
        error: The exception.
        simulation: The simulation.
    """
    if isinstance(error, KeyboardInterrupt) and interrupted():
        return error
    process, origin = _origin(error)
    blamed = simulation.experiment.selection.blamed(origin)
    if isinstance(origin, GeomxError) or blamed is not None:
        return blamed if blamed is not None and not isinstance(origin, GeomxError) else origin
    if process is None:
        return _of_callback(error, simulation)
    if _is_worker(process, simulation):
        return error
    if origin is not error or isinstance(error, SystemExit):
        what = said(origin)
    else:
        what = str(error).strip().splitlines()[-1]
    return PluginError(f"{_name(process, simulation)} failed: {what}")


def _of_callback(error: BaseException, simulation: Running) -> BaseException:
    """Name the function that SimPy called, unless it is geomx's or SimPy's own."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for caller, frame in pairwise(frames):
        module = str(frame.f_globals.get("__name__", ""))
        if caller.f_code is simpy.Environment.step.__code__ and not module.startswith(_LOOP):
            kind = "SimPy callback "
            named = simulation.experiment.selection.named(frame, kind=kind)
            return PluginError(f"{named} failed: {said(error)}")
    return error


def _origin(error: BaseException) -> tuple[simpy.Process | None, BaseException]:
    """Return the process that failed, if any, and what it raised."""
    process, origin = None, error
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is simpy.Environment.step.__code__:
            event = frame.f_locals.get("event")
            if isinstance(event, simpy.Process) and isinstance(event._value, BaseException):
                process, origin = event, event._value
        elif frame.f_code is simpy.Process._resume.__code__:
            process = frame.f_locals["self"]
    cause = origin.__cause__
    while isinstance(cause, type(origin)) and cause.args == origin.args:  # waiting for another one
        origin, cause = cause, cause.__cause__
    return process, origin


def _next(simulation: Running) -> Any:
    """Return the process or plugin's callback that the next event of this instant will call."""
    head = simulation.env._queue[:1]
    calls = head[0][-1].callbacks if head and head[0][0] == simulation.env.now else None
    called = calls[0] if calls else None
    owner = getattr(called, "__self__", None)
    if owner is simulation:
        return None
    return owner if isinstance(owner, simpy.Process) else called


def _is_worker(process: simpy.Process, simulation: Running) -> bool:
    code = getattr(process._generator, "gi_code", None)
    return any(code is type(each).run.__code__ for each in simulation.workers.values())


def _name(what: Any, simulation: Running) -> str:
    """Return the name of a process or a callback for errors, with its plugin if known."""
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
