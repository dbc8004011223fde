"""The help of commands that take words: what argparse cannot know of them."""

from __future__ import annotations

from collections.abc import Callable


def _plan_help() -> str:
    from geomx.options.parsing import described
    from geomx.options.schema import PlanOptions

    told = described(PlanOptions, "plan")
    width = max(len(key) for key, _ in told)
    options = "\n".join(f"  {key:{width}}  {text}" for key, text in told)
    return f"""\
WORDS describe the experiment, as for python -m geomx: network=FILE, workload=NAME, iterations=N ...
Options of the plan, with their defaults:
{options}

geomx plan network=my_wan.yaml workload=digits_cnn
geomx plan network=my_wan.yaml workload=resnet50 'plan.sync=[NAME,NAME]' plan.together=1"""


def _launch_help() -> str:
    return """\
JOB.yaml   which node runs on which machine (docs/machines.md); without it, all run on this one
WORDS      the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, runtime.OPTION=VALUE, hydra.run.dir=FOLDER (python -m geomx --help)
COMMAND    what every worker runs: a script that uses geomx.kv, geomx.mxnet or geomx.torch. The
           first worker's output is shown; logs of all nodes are in the run's folder, in nodes/.
           Without a command, a job file's machines run the workload of the experiment.

geomx launch network=my_wan.yaml +sync=NAME '+accel=[NAME]' -- python train.py
geomx launch job.yaml -- python train.py"""


def _compat_help() -> str:
    return """\
COMMAND    a launch script that starts schedulers, servers and workers with the environment
           variables of GeoMX or ps-lite (DMLC_ROLE, DMLC_PS_ROOT_URI ...); see docs/moving.md.
           The logs of all its processes are left in a folder, which is the last line printed.

geomx compat -- bash run_vanilla_hips.sh"""


EXPERIMENT = """\
Words that name no command run an experiment, as python -m geomx does:
  geomx +sync=NAME '+accel=[NAME,NAME]'"""
"""What the help says of words that are no command."""

HELP: dict[str, tuple[str, str, Callable[[], str]]] = {
    "plan": (
        "Which plugins for a network and a workload.", "[WORDS] [plan.OPTION=VALUE]", _plan_help
    ),
    "launch": (
        "Run a script as every worker, here or on machines.",
        "[JOB.yaml] [WORDS] -- COMMAND",
        _launch_help,
    ),
    "compat": (
        "Run a launch script of GeoMX or MXNet as it is.", "-- COMMAND", _compat_help
    ),
}  # fmt: skip
"""Commands with words of their own: what they do, what they take, and the rest of their help."""
