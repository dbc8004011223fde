"""The job that a script's processes make together: its cluster, its plugins, everybody's name.

Parties are named in the order of their schedulers' addresses and workers in the order in which
they started, the master first, so that the same script gives the same names again. A job of MXNet's
own kind, with one scheduler and no parties, is one in which every worker is a party by itself, its
local server inside its process: compression and asynchrony then mean what they mean in MXNet.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geomx.compat.roles import Address
from geomx.compat.variables import ALL_WORKERS, Said, Settled, Wish, settle
from geomx.errors import ConfigError
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.options.parsing import build_options
from geomx.options.schema import RuntimeOptions
from geomx.plugin.registry import Registry

CENTRAL = "central"

Seat = tuple[str, int]
"""A node of the cluster: name and number."""

About = Mapping[str, Any]
"""What a process says of itself when it registers."""


@dataclass
class Seats:
    """The nodes that one server's process and its party's workers are.

    Attributes:
        own: Of the server's process.
        workers: Of each worker's process, in the order of their ranks; none for a master who does
            not train.
    """

    own: list[Seat] = field(default_factory=list)
    workers: list[list[Seat]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """For a note."""
        return {"own": self.own, "workers": self.workers}


@dataclass
class Job:
    """A job that can begin.

    Attributes:
        spec: What everybody is told on joining.
        token: Lets them in.
        central: Seats at the central site: the global servers, first the one that also is the
            local server of workers there.
        parties: Seats of every party, in order of the parties' addresses.
        outside: Whether the master worker gives initial values without taking part.
        notes: What the user should know.
    """

    spec: Spec
    token: str
    central: list[Seats]
    parties: list[Seats]
    outside: bool
    notes: list[str]

    def open(self, host: str) -> Member:
        """Be its scheduler, at this address; others can join."""
        member = Member.open_scheduler(self.spec, self.token, host)
        member.wire()
        return member

    def ticket(self, member: Member) -> dict[str, Any]:
        """What everybody must know to join."""
        return {"scheduler": member.loop.address, "token": self.token, "outside": self.outside}


def rank_order(about: About) -> tuple[bool, str, int]:
    """By what processes of one kind are put in order."""
    return (not about.get("master"), str(about["host"]), int(about["pid"]))


def meeting_place(about: About) -> Address:
    """Where the party of a server meets."""
    host, port = about["party"]
    return str(host), int(port)


def geo_job(servers: Sequence[About], wish: Wish) -> Job:
    """A job of several parties.

    Args:
        servers: What all servers say of themselves, and of their parties' workers (``workers``);
            ``global`` says who is a global server.
        wish: The master's.

    Raises:
        ConfigError: A variable makes no sense.
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
    said = Said(
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
    settled = settle(said, wish, len(hub))
    workers = len(central) if trains else 0
    _count_workers(said, settled, sum(sizes.values()) + workers)
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


def flat_job(servers: Sequence[About], workers: Sequence[About], wish: Wish) -> Job:
    """A job of MXNet's own kind. Arguments as they registered, in order; see `geo_job`."""
    names = [f"worker{index}" for index, _ in enumerate(workers)]
    said = Said(
        [
            *(("a server", each["environ"]) for each in servers),
            *((name, each["environ"]) for name, each in zip(names, workers, strict=True)),
        ]
    )
    settled = settle(said, wish, len(servers))
    spec = _spec(settled, dict.fromkeys(names, 1), len(servers), 0)
    seat = {node.name: (node.name, node.id) for node in spec.cluster.nodes}
    at_hub = [Seats([seat[f"{CENTRAL}/global_server{i}"]]) for i, _ in enumerate(servers)]
    hosted = [[seat[f"{name}/worker0"], seat[f"{name}/server"]] for name in names]
    parties = [Seats(workers=hosted)]
    return Job(spec, secrets.token_hex(16), at_hub, parties, False, settled.notes)


def _count_workers(said: Said, settled: Settled, workers: int) -> None:
    if ALL_WORKERS in said and said.number(ALL_WORKERS, int, 0) != workers:
        said.note(ALL_WORKERS, f"{workers} workers train, and num_all_workers is {workers}")


def _spec(settled: Settled, parties: Mapping[str, int], servers: int, workers: int) -> Spec:
    """Links are as fast as the machines' own."""
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
