"""What one process is to be, by GeoMX's environment variables.

GeoMX has two planes: inside a party, and between parties. A process has a role on each; on which
one, by which variables, and what follows is in docs/moving.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from geomx.errors import ConfigError

Kind = Literal["global_scheduler", "scheduler", "global_server", "server", "worker"]
Address = tuple[str, int]

ROLES = ("scheduler", "server", "worker")
GLOBAL_ROLES = ("global_scheduler", "global_server")


@dataclass(frozen=True)
class Role:
    """One process.

    Attributes:
        kind: What it is.
        party: Where its party meets; None for the global scheduler.
        world: Where the parties' servers meet; None for whom that does not concern.
        servers: Servers of its party.
        workers: Workers of its party, the master included.
        global_servers: Of the job.
        parties: Those that train, the central one not counted.
        master: Whether this worker configures the job.
        central: Whether workers of the central party train.
    """

    kind: Kind
    party: Address | None = None
    world: Address | None = None
    servers: int = 0
    workers: int = 0
    global_servers: int = 0
    parties: int = 0
    master: bool = False
    central: bool = False


def role_of(environ: Mapping[str, str]) -> Role | None:
    """What `environ` makes of a process; None if it says nothing.

    Raises:
        ConfigError: A variable is missing, or makes no sense; says which.
    """
    local, wide = environ.get("DMLC_ROLE", ""), environ.get("DMLC_ROLE_GLOBAL", "")
    if not local and not wide:
        return None
    if local and local not in ROLES:
        raise ConfigError("DMLC_ROLE", local, f"must be one of {', '.join(ROLES)}")
    if wide and wide not in GLOBAL_ROLES:
        raise ConfigError("DMLC_ROLE_GLOBAL", wide, f"must be one of {', '.join(GLOBAL_ROLES)}")
    if wide == "global_scheduler":
        world, servers, parties = _world(environ)
        return Role("global_scheduler", world=world, global_servers=servers, parties=parties)
    counts = {
        "party": _address(environ, "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"),
        "servers": _count(environ, "DMLC_NUM_SERVER"),
        "workers": _count(environ, "DMLC_NUM_WORKER"),
    }
    if local == "worker":
        return Role("worker", master=flag(environ, "DMLC_ROLE_MASTER_WORKER"), **counts)  # type: ignore[arg-type]
    if local == "scheduler":
        return Role("scheduler", **counts)  # type: ignore[arg-type]
    if not wide and "DMLC_PS_GLOBAL_ROOT_URI" not in environ:
        return Role("server", **counts)  # type: ignore[arg-type]  # MXNet's own flat job
    world, global_servers, parties = _world(environ)
    return Role(
        "global_server" if wide else "server",
        world=world,
        global_servers=global_servers,
        parties=parties,
        central=flag(environ, "DMLC_ENABLE_CENTRAL_WORKER"),
        **counts,  # type: ignore[arg-type]
    )


def flag(environ: Mapping[str, str], name: str) -> bool:
    """A variable that is on or off, off if it is not set.

    Raises:
        ConfigError: It is neither.
    """
    value = environ.get(name, "").strip().lower()
    if value in ("", "0", "false"):
        return False
    if value.isdigit() or value == "true":
        return True
    raise ConfigError(name, environ[name], "must be 0 or 1")


def _world(environ: Mapping[str, str]) -> tuple[Address, int, int]:
    """Where the parties' servers meet, how many global ones there are, and how many parties."""
    where = _address(environ, "DMLC_PS_GLOBAL_ROOT_URI", "DMLC_PS_GLOBAL_ROOT_PORT")
    servers = _count(environ, "DMLC_NUM_GLOBAL_SERVER")
    return where, servers, _count(environ, "DMLC_NUM_GLOBAL_WORKER")


def _address(environ: Mapping[str, str], host: str, port: str) -> Address:
    if not environ.get(host):
        raise ConfigError(host, "", "must be the address of the scheduler")
    return environ[host], _count(environ, port, 65535)


def _count(environ: Mapping[str, str], name: str, most: int = 10_000) -> int:
    value = environ.get(name, "")
    if not value.isdigit() or not 1 <= int(value) <= most:
        raise ConfigError(name, value, f"must be a whole number from 1 to {most}")
    return int(value)
