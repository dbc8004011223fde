"""The role of a process, from GeoMX's environment variables.

GeoMX has two planes: within a party, and between parties. A process has a role on each;
docs/moving.md describes the variables and their effects.
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
    """Role of one process.

    Attributes:
        kind: Its kind.
        party: Address of its party's scheduler; None for the global scheduler.
        world: Address of the global scheduler; None for processes that do not use it.
        servers: Number of servers of its party.
        workers: Number of workers of its party, the master included.
        global_servers: Number of global servers of the job.
        parties: Number of training parties, without the central one.
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
    """Return the role of a process.

    Args:
        environ: Its environment variables.

    Returns:
        The role; None if the variables do not set one.

    Raises:
        ConfigError: A variable is missing or invalid; the message names it.
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
    """Return the value of a Boolean variable, false if it is not set.

    Args:
        environ: Environment variables.
        name: Name of the variable.

    Raises:
        ConfigError: It is neither on nor off.
    """
    value = environ.get(name, "").strip().lower()
    if value in ("", "0", "false"):
        return False
    if value.isdigit() or value == "true":
        return True
    raise ConfigError(name, environ[name], "must be 0 or 1")


def _world(environ: Mapping[str, str]) -> tuple[Address, int, int]:
    """Return the address of the global scheduler and the numbers of global servers and parties."""
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
