"""The simulator: the protocol of the live runtime, driven in virtual time over a fluid WAN.

`run` simulates an experiment; `transfer_times` is the network model alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from geomx.experiment import Experiment
    from geomx.results import Results

__all__ = ["run", "transfer_times"]


def run(experiment: Experiment, directory: Path) -> Results:
    """Simulate `experiment` and leave its files in `directory`.

    Raises:
        GeomxError: The experiment cannot be simulated, or came to a standstill.
    """
    from geomx.sim.simulation import simulate

    return simulate(experiment, directory)


def __getattr__(name: str) -> Any:
    if name == "transfer_times":
        from geomx.sim.transfer import transfer_times

        return transfer_times
    raise AttributeError(f"module 'geomx.sim' has no attribute {name!r}")
