"""Help texts of the commands that take overrides, which argparse does not know."""

from __future__ import annotations

from collections.abc import Callable


def _plan_help() -> str:
    from geomx.options.parsing import described
    from geomx.options.schema import PlanOptions

    told = described(PlanOptions, "plan")
    width = max(len(key) for key, _ in told)
    options = "\n".join(f"  {key:{width}}  {text}" for key, text in told)
    return f"""\
OVERRIDES describe the experiment, as for python -m geomx: network=FILE, workload=NAME ...
Options of the plan, with their defaults:
{options}

geomx plan network=my_wan.yaml workload=digits_cnn
geomx plan network=my_wan.yaml workload=resnet50 'plan.sync=[NAME,NAME]' plan.together=1"""


def _launch_help() -> str:
    return """\
JOB.yaml   the machine of each node (docs/machines.md); without it, all run on this machine
OVERRIDES  the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, runtime.OPTION=VALUE, hydra.run.dir=FOLDER (python -m geomx --help)
COMMAND    the command of every worker: a script that uses geomx.kv, geomx.mxnet or geomx.torch.
           The output of the first worker is shown; the logs of all nodes are in the run's folder,
           in nodes/. Without a command, a job file's machines run the experiment's workload.

geomx launch network=my_wan.yaml +sync=NAME '+accel=[NAME]' -- python train.py
geomx launch job.yaml -- python train.py"""


def _compat_help() -> str:
    return """\
COMMAND    a launch script that starts schedulers, servers and workers with the environment
           variables of GeoMX or ps-lite (DMLC_ROLE, DMLC_PS_ROOT_URI ...); see docs/moving.md.
           The last line printed is the folder with the logs of all its processes.

geomx compat -- bash run_vanilla_hips.sh"""


EXPERIMENT = """\
Overrides without a command run an experiment, as python -m geomx does:
  geomx +sync=NAME '+accel=[NAME,NAME]'"""
"""Help on overrides without a command."""

HELP: dict[str, tuple[str, str, Callable[[], str]]] = {
    "plan": (
        "Choose plugins for a network and a workload.", "[OVERRIDES] [plan.OPTION=VALUE]",
        _plan_help,
    ),
    "launch": (
        "Run a script as every worker, here or on many machines.",
        "[JOB.yaml] [OVERRIDES] -- COMMAND",
        _launch_help,
    ),
    "compat": (
        "Run an unmodified launch script of GeoMX or MXNet.", "-- COMMAND", _compat_help
    ),
}  # fmt: skip
"""Commands with overrides or a command line: summary, usage, and the rest of their help."""
