"""Complaints of the fabric in a simulation: an error or a warning, as in live runs."""

from __future__ import annotations

import warnings

from geomx import _core
from geomx.errors import GeomxError, NodeLost
from geomx.sim.protocols import Notice, Running

COMPLAINTS = frozenset({"refused", "lost", "non_finite"})
"""The kinds of notices that are complaints."""


def tell(simulation: Running, notice: Notice) -> None:
    """Warn of a complaint, or end the run with it.

    Args:
        simulation: The simulation.
        notice: Its kind is one of `COMPLAINTS`. A push is not finite if it holds NaN or infinity.

    Raises:
        GeomxError: An instruction was refused, or a push is not finite where
            ``runtime.non_finite`` is refuse.
        NodeLost: A node or a connection was lost that the run does not go on without.
    """
    node, kind, key, number, text, reason, *_ = notice
    if kind == "refused":
        raise GeomxError(f"{text}: {reason}")
    if kind == "lost":
        raise NodeLost(text, reason)
    refuse = simulation.experiment.runtime.non_finite == "refuse"
    worker, name = simulation.workers[node].spec.name, simulation.tensor_name(key)
    tensor = f"key {name.removeprefix('key ')!r}"
    told = _core.non_finite_text(worker, tensor, number, text, refuse)
    if refuse:
        raise GeomxError(told)
    warnings.warn(told, stacklevel=2)
