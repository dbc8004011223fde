"""What happens in a simulation when a worker pushes NaN or infinity."""

from __future__ import annotations

import warnings

from geomx import _core
from geomx.errors import GeomxError
from geomx.sim.protocols import Running


def tell_of_not_finite(simulation: Running, node: int, key: int, number: int, what: str) -> None:
    """Warn of a push with NaN, or end the run, as live workers do.

    Args:
        simulation: The simulation.
        node: Id of the worker.
        key: The tensor.
        number: The round.
        what: What was pushed.

    Raises:
        GeomxError: ``runtime.non_finite`` is refuse.
    """
    refuse = simulation.experiment.runtime.non_finite == "refuse"
    worker, name = simulation.workers[node].spec.name, simulation.tensor_name(key)
    tensor = f"key {name.removeprefix('key ')!r}"
    text = _core.non_finite_text(worker, tensor, number, what, refuse)
    if refuse:
        raise GeomxError(text)
    warnings.warn(text, stacklevel=2)
