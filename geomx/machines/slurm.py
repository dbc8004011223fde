"""Slurm: the machines of a job are those of the allocation, reached by ``srun``.

In a batch script, ``hosts: slurm`` in the job file stands for the machines of the allocation,
called ``n0``, ``n1`` and so on, and by default a machine is reached by a job step with one task.
``srun`` forwards standard input and output as SSH does, so that everything else is as with SSH.
"""

from __future__ import annotations

import os
import subprocess

from geomx.errors import ConfigError

NAME = "slurm"
LIST = "SLURM_JOB_NODELIST"
SRUN = "srun --quiet --overlap --nodes=1 --ntasks=1 --nodelist={address} {command}"


def hosts() -> dict[str, dict[str, str]]:
    """Return the machines of this allocation, as in a job file.

    Raises:
        ConfigError: There is no allocation, or scontrol failed.
    """
    granted = os.environ.get(LIST)
    if not granted:
        remedy = f"needs an allocation ({LIST} is not set): run it by sbatch or salloc"
        raise ConfigError("hosts", NAME, remedy)
    try:
        listed = subprocess.run(
            ["scontrol", "show", "hostnames", granted],
            check=True, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            "hosts", NAME, f"scontrol could not list the machines: {error}"
        ) from error
    names = listed.stdout.split()
    return {f"n{number}": {"address": name, "reach": SRUN} for number, name in enumerate(names)}
