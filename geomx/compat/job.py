"""The job that the processes of a script form: its cluster, its plugins and the names of its nodes.

Parties are named in the order of their schedulers' addresses and workers in the order in which they
started, the master first, so that the same script gives the same names again. In a plain MXNet job,
with one scheduler and no parties, every worker is a party of its own, with its local server in the
same process; compression and asynchrony then have the same meaning as in MXNet.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geomx.compat.roles import Address
from geomx.compat.variables import ALL_WORKERS, JobSettings, Settings, Variables, settle
from geomx.errors import ConfigError
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.options.parsing import build_options
from geomx.options.schema import RuntimeOptions
from geomx.plugin.registry import Registry

CENTRAL = "central"

Seat = tuple[str, int]
"""A node of the cluster: name and id."""

About = Mapping[str, Any]
"""The description with which a process registers."""


@dataclass
class Seats:
    """The nodes of one server process and of its party's workers.

    Attributes:
        own: Nodes of the server's process.
        workers: Nodes of each worker's process, by rank; empty for a master that does not train.
    """

    own: list[Seat] = field(default_factory=list)
    workers: list[list[Seat]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the fields of a note."""
        return {"own": self.own, "workers": self.workers}


@dataclass
class Job:
    """A job that can begin.

    Attributes:
        spec: The experiment, sent to all nodes that join.
        token: Authenticates them.
        central: Nodes at the central site: the global servers, the first of which may also be the
            local server of workers there.
        parties: Nodes of every party, in the order of the parties' addresses.
        outside: Whether the master worker sets initial values without training.
        notes: Remarks for the user.
    """

    spec: Spec
    token: str
    central: list[Seats]
    parties: list[Seats]
    outside: bool
    notes: list[str]

    def open(self, host: str) -> Member:
        """Start the job's scheduler at the address `host`; afterwards nodes can join."""
        # The addresses are those of GeoMX's own variables, and like GeoMX this trusts its network.
        member = Member.open_scheduler(self.spec, self.token, host, insecure=True)
        member.wire()
        return member

    def ticket(self, member: Member) -> dict[str, Any]:
        """Return what a process needs to join.

        Args:
            member: The job's scheduler.
        """
        return {"scheduler": member.loop.address, "token": self.token, "outside": self.outside}


def rank_order(about: About) -> tuple[bool, str, int]:
    """Return the sort key of processes of one kind."""
    return (not about.get("master"), str(about["host"]), int(about["pid"]))


def meeting_place(about: About) -> Address:
    """Return the address of the scheduler of a server's party."""
    host, port = about["party"]
    return str(host), int(port)


def geo_job(servers: Sequence[About], wish: Settings) -> Job:
    """Create a job of several parties.

    Args:
        servers: Descriptions of all servers, with those of their parties' workers (``workers``);
            ``global`` marks global servers.
        wish: Settings by the master worker's script.

    Raises:
        ConfigError: A variable is missing or invalid.
    """
    hub = sorted((each for each in servers if each["global"]), key=rank_order)
    parties = sorted((each for each in servers if not each["global"]), key=meeting_place)
    central: list[About] = next((each["workers"] for each in hub if each["workers"]), [])
    if not any(worker["master"] for worker in central):
        remedy = "must be 1 for one worker of the central party, which configures the others"
        raise ConfigError("DMLC_ROLE_MASTER_WORKER", "", remedy)
    trains = any(each["central"] for each in hub)
    names = [f"party{index}" for index, _ in enumerate(parties, 1)]
    sizes = {name: len(each["workers"]) for name, each in zip(names, parties, strict=True)}
    variables = Variables(
        [
            *((name, each["environ"]) for name, each in zip(names, parties, strict=True)),
            *(("a global server", each["environ"]) for each in hub),
            *(
                (f"a worker of {name}", worker["environ"])
                for name, each in zip(
                    [*names, CENTRAL], [*parties, {"workers": central}], strict=True
                )
                for worker in each["workers"]
            ),
        ]
    )
    settled = settle(variables, wish, len(hub))
    workers = len(central) if trains else 0
    _count_workers(variables, settled, sum(sizes.values()) + workers)
    spec = _spec(settled, sizes, len(hub), workers)
    seat = {node.name: (node.name, node.id) for node in spec.cluster.nodes}
    at_hub = [Seats([seat[f"{CENTRAL}/global_server{i}"]]) for i, _ in enumerate(hub)]
    if trains:
        at_hub[0].own.append(seat[f"{CENTRAL}/server"])
    for index, each in enumerate(hub):
        at_hub[index].workers = [
            [seat[f"{CENTRAL}/worker{i}"]] if trains else [] for i, _ in enumerate(each["workers"])
        ]
    seats = [
        Seats([seat[f"{name}/server"]], [[seat[f"{name}/worker{i}"]] for i in range(size)])
        for name, size in sizes.items()
    ]
    return Job(spec, secrets.token_hex(16), at_hub, seats, not trains, settled.notes)


def flat_job(servers: Sequence[About], workers: Sequence[About], wish: Settings) -> Job:
    """Create a plain MXNet job.

    Args:
        servers: Descriptions of the servers, by rank.
        workers: Descriptions of the workers, by rank.
        wish: Settings by the master worker's script.

    Raises:
        ConfigError: A variable is missing or invalid.
    """
    names = [f"worker{index}" for index, _ in enumerate(workers)]
    variables = Variables(
        [
            *(("a server", each["environ"]) for each in servers),
            *((name, each["environ"]) for name, each in zip(names, workers, strict=True)),
        ]
    )
    settled = settle(variables, wish, len(servers))
    spec = _spec(settled, dict.fromkeys(names, 1), len(servers), 0)
    seat = {node.name: (node.name, node.id) for node in spec.cluster.nodes}
    at_hub = [Seats([seat[f"{CENTRAL}/global_server{i}"]]) for i, _ in enumerate(servers)]
    hosted = [[seat[f"{name}/worker0"], seat[f"{name}/server"]] for name in names]
    parties = [Seats(workers=hosted)]
    return Job(spec, secrets.token_hex(16), at_hub, parties, False, settled.notes)


def _count_workers(variables: Variables, settled: JobSettings, workers: int) -> None:
    if ALL_WORKERS in variables and variables.number(ALL_WORKERS, int, 0) != workers:
        variables.note(
            ALL_WORKERS, f"is ignored: {workers} workers train, so num_all_workers is {workers}"
        )


def _spec(settled: JobSettings, parties: Mapping[str, int], servers: int, workers: int) -> Spec:
    """Return the experiment; links have the machines' own speed."""
    access = {"uplink_mbps": 10_000, "downlink_mbps": 10_000}
    central = {"name": CENTRAL, "global_servers": servers, "workers": workers, **access}
    network = {
        "name": "compat",
        "central": central,
        "parties": {name: {"workers": size, **access} for name, size in parties.items()},
        "delay_ms": 0,
    }
    chosen = Registry.discover().select(settled.sync, list(settled.accel))
    return Spec(
        read_network(network),
        chosen.sync,
        chosen.accel,
        emulated=False,
        runtime=build_options(RuntimeOptions, settled.runtime, "runtime"),
    )
