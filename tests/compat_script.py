"""A launch script like those of GeoMX users, which sets each process' role by variables.

``python compat_script.py PARTIES WORKERS GLOBAL_SERVERS [NAME=VALUE ...] -- COMMAND`` starts the
schedulers, the servers, the master and the workers of a job on free ports of this machine. All but
the last worker run in the background with their output discarded. ``--slice N`` is appended to the
command. PARTIES 0 is a flat job, as MXNet's own launcher starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from ports import free_port  # beside this script

IDLE = [sys.executable, "-c", "import mxnet"]


def start(command: list[str], quiet: bool, **variables: object) -> subprocess.Popen[bytes]:
    """Start one process; names of variables are given without ``DMLC_``."""
    own = {f"DMLC_{name.upper()}": str(value) for name, value in variables.items()}
    output = subprocess.DEVNULL if quiet else None
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=output)


def main(words: list[str]) -> int:
    """Start all processes; return the last worker's exit status."""
    split = words.index("--")
    parties, workers, servers = (int(word) for word in words[:3])
    os.environ.update(word.split("=", 1) for word in words[3:split])
    command = words[split + 1 :]
    first = free_port(parties + 2)
    world_port, *ports = [str(first + index) for index in range(parties + 2)]
    world = {
        "ps_global_root_uri": "127.0.0.1", "ps_global_root_port": world_port,
        "num_global_server": servers, "num_global_worker": parties,
    }  # fmt: skip

    def party(port: str, servers: int, workers: int) -> dict[str, object]:
        here = {"ps_root_uri": "127.0.0.1", "ps_root_port": port, "num_all_worker": total}
        return {**here, "num_server": servers, "num_worker": workers}

    total = max(1, parties) * workers
    if parties == 0:
        flat = party(ports[0], servers, workers)
        start(IDLE, True, role="scheduler", **flat)
        for _ in range(servers):
            start(IDLE, True, role="server", **flat)
        jobs = [(flat, index) for index in range(workers)]
    else:
        central = party(ports[0], servers, 1)
        start(IDLE, True, role_global="global_scheduler", **world)
        for _ in range(servers):
            start(IDLE, True, role_global="global_server", role="server", **world, **central)
        start(IDLE, True, role="scheduler", **central)
        start([*command, "--slice", "0"], True, role="worker", role_master_worker=1, **central)
        jobs = []
        for index, port in enumerate(ports[1:]):
            each = party(port, 1, workers)
            start(IDLE, True, role="scheduler", **each)
            start(IDLE, True, role="server", **world, **each)
            jobs += [(each, index * workers + worker) for worker in range(workers)]
    started = [
        start([*command, "--slice", str(index)], index + 1 < len(jobs), role="worker", **each)
        for each, index in jobs
    ]
    return started[-1].wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
