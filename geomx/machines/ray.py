"""Ray: every site is a resource, and its nodes are placed on Ray's machines with that resource.

With ``hosts: ray`` in the job file the names of machines are resources, usually one per party, and
Ray's machines declare which they have (``ray start --resources '{"beijing": 1}'``). A machine is
reached through this module: ``python -m geomx.machines.ray RESOURCE COMMAND...`` has an actor run
the command on a machine with that resource and forwards standard input and output, so that
everything else is as with SSH. When this process ends for any reason, Ray ends the actor and with
it the command's input.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from geomx.errors import GeomxError
from geomx.machines.frames import ELSEWHERE

NAME = "ray"
REACH = f"{shlex.quote(sys.executable)} -P -m geomx.machines.ray {{host}} {{command}}"
SHARE = 0.001
"""Amount of its resource that a node takes; small, so that all nodes of a site fit in."""

CHUNK = 64 * 1024


def hosts(parties: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return every name that the parties use as a machine of a job file.

    Args:
        parties: ``parties`` of the job file; what is no name in them is left to its checks.
    """
    names: list[Any] = []
    for roles in parties.values():
        for places in roles.values():
            names += places if isinstance(places, list) else [places]
    named = [name for name in names if isinstance(name, str)]
    return {name: {"address": ELSEWHERE, "reach": REACH} for name in named}


def carry(resource: str, command: Sequence[str]) -> int:
    """Run a command on a machine with a resource, with this process's standard input and output.

    Args:
        resource: Name of the resource.
        command: The command.

    Returns:
        Its exit status.

    Raises:
        GeomxError: Ray is not installed, cannot be reached, or has no such machine.
    """
    try:
        import ray
    except ImportError as error:
        raise GeomxError("Ray is not installed: pip install 'geomx[ray]'") from error
    try:
        # The address is that of RAY_ADDRESS, or of the cluster that this machine belongs to.
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        remedy = "start geomx launch on a machine of the cluster, or set RAY_ADDRESS"
        raise GeomxError(f"no Ray cluster could be reached ({error}): {remedy}") from error
    if resource not in ray.cluster_resources():
        remedy = f"run ray start --resources '{{\"{resource}\": 1}}' on such machines"
        raise GeomxError(f"no machine of the Ray cluster has the resource {resource}: {remedy}")
    placed = ray.remote(
        num_cpus=0,
        resources={resource: SHARE},
        scheduling_strategy="SPREAD",
        concurrency_groups={"input": 1, "output": 1},  # so that one can wait while the other runs
    )
    actor = placed(_Command).remote(list(command))
    feed = actor.feed.options(concurrency_group="input")
    take = actor.take.options(concurrency_group="output")

    def pass_input() -> None:
        while True:
            data = os.read(sys.stdin.fileno(), CHUNK)
            feed.remote(data)
            if not data:
                return

    threading.Thread(target=pass_input, daemon=True).start()
    while data := ray.get(take.remote()):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return int(ray.get(actor.wait.remote()))


class _Command:
    """The actor: a process with its standard input and output."""

    def __init__(self, command: list[str]) -> None:
        import ray

        env = {**os.environ, "GEOMX_HOST": ray.util.get_node_ip_address()}
        if not env.get("CUDA_VISIBLE_DEVICES", "all"):
            del env["CUDA_VISIBLE_DEVICES"]  # Ray hides GPUs from those that ask for none
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=env
        )

    def feed(self, data: bytes) -> None:
        """Write to its standard input; empty data closes it."""
        assert self._process.stdin is not None
        try:
            if data:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            else:
                self._process.stdin.close()
        except OSError:
            pass  # it has ended, and its output says so

    def take(self) -> bytes:
        """Return its next output, waiting for it; empty at the end."""
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), CHUNK)

    def wait(self) -> int:
        """Return its exit status."""
        return self._process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run ``python -m geomx.machines.ray RESOURCE COMMAND...``.

    Args:
        arguments: The resource, then the command.

    Returns:
        The command's exit status.
    """
    try:
        return carry(arguments[0], arguments[1:])
    except GeomxError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # A thread may be blocked on an input that never ends.
    os._exit(status)
