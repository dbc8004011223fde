"""The live runtime's Python side: the same experiment as in simulation, as real processes.

`run` starts one process per node on this machine (`geomx.live.launcher`); each of them joins the
scheduler, learns the experiment from it and plays its part (`geomx.live.node`). The protocol and
all that moves bytes is `geomx._core.Loop`; nothing in here touches a socket.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geomx.experiment import Experiment
    from geomx.results import Results


def run(experiment: Experiment, directory: Path) -> Results:
    """Run an experiment with real processes on this machine, leaving its files in `directory`.

    Raises:
        NodeLost: A process died or fell silent; what was measured until then is kept.
        GeomxError: The run could not start.
        KeyboardInterrupt: Ctrl-C; all processes have ended, what was measured is kept.
    """
    from geomx.live.launcher import run_experiment

    return run_experiment(experiment, directory)
