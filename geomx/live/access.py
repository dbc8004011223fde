"""Authentication and encryption of a run: a token, and TLS.

The token identifies the run. It is generated for every run and passed in the environment or over a
launcher's connection. Both ends of every connection prove to each other that they know it, without
sending it. Between machines that is not sufficient, because what follows could be read and changed
on the network. There, connections use TLS 1.3 with certificates on both sides
(`geomx.machines.certs`); a certificate identifies the node.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from geomx import _core
from geomx.errors import NO_TLS, ConfigError

TOKEN, TLS, INSECURE = "GEOMX_TOKEN", "GEOMX_TLS", "GEOMX_INSECURE"
"""Environment variables: the token, the folder with a node's `FILES`, and "1" to allow listening on
addresses beyond this machine without TLS, which the core checks when it opens a port."""

FILES = {"authority": "authority.pem", "certificate": "node.pem", "key": "node.key"}
"""Files of a node's folder: the trusted authority, the node's certificate, and its key."""


def new_token() -> str:
    """Return the token of a new run: that of this process's environment, or else a random one."""
    return os.environ.get(TOKEN) or secrets.token_hex(16)


def check_token(absent: Sequence[str], by_hand: Sequence[str]) -> None:
    """Refuse a run that nodes are to join by hand if its token was not set by the user.

    Args:
        absent: The option ``faults.absent``.
        by_hand: Names of the nodes that join by hand.

    Raises:
        ConfigError: This process's environment has no token.
    """
    if by_hand and not os.environ.get(TOKEN):
        remedy = f"needs {TOKEN} set to a long random secret, which those that join have as well"
        raise ConfigError("faults.absent", ",".join(absent), remedy)


def has_tls() -> bool:
    """Return whether the compiled core was built with OpenSSL."""
    return _core.build_info()["tls"] != "no_openssl"


def is_loopback(address: str) -> bool:
    """Return whether an address or a name is reachable from this machine only."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def check(key: str, host: str, tls: object, insecure: bool) -> None:
    """Refuse to listen on addresses beyond this machine without TLS.

    Args:
        key: The option that contains `host`, for the error.
        host: The address to listen on.
        tls: Whether there are certificates, as a truth value.
        insecure: Whether the user allows it without TLS.

    Raises:
        ConfigError: There are no certificates, or this geomx was built without TLS.
    """
    if tls and not has_tls():
        raise ConfigError(key, host, f"needs TLS, but {NO_TLS}")
    if not (tls or insecure or is_loopback(host)):
        remedy = (
            "is beyond this machine, and anyone on the network could read and change what is "
            "sent: give certificates (`geomx certs` makes them), or choose insecure"
        )
        raise ConfigError(key, host, remedy if has_tls() else f"{remedy}; {NO_TLS}")


def read_files(folder: Path) -> dict[str, str]:
    """Return the contents of a node's files by the keys of `FILES`.

    Args:
        folder: The node's folder.

    Returns:
        Text by key.

    Raises:
        ConfigError: A file is missing or unreadable.
    """
    try:
        return {what: (folder / name).read_text("ascii") for what, name in FILES.items()}
    except FileNotFoundError as error:
        lacking = [name for name in FILES.values() if not (folder / name).exists()]
        remedy = f"lacks {' and '.join(lacking)}, which `geomx certs` makes"
        raise ConfigError("tls", folder, remedy) from error
    except (OSError, ValueError) as error:
        raise ConfigError("tls", folder, f"holds a file that cannot be read: {error}") from error


def paths(folder: Path | None) -> tuple[str, str, str] | None:
    """Return the paths of a node's files as `geomx._core.Loop` takes them; None for no folder."""
    if folder is None:
        return None
    authority, certificate, key = (str(folder / name) for name in FILES.values())
    return authority, certificate, key


def folder_from_environment() -> Path | None:
    """Return the folder of this process's files from its environment; None if unset."""
    folder = os.environ.get(TLS)
    return Path(folder) if folder else None


def insecure_from_environment() -> bool:
    """Return whether this process may listen beyond this machine without TLS."""
    return os.environ.get(INSECURE, "") == "1"


def write_files(folder: Path, contents: Mapping[str, str]) -> Path:
    """Write contents from `read_files`, readable by this user only; return `folder`."""
    folder.mkdir(mode=0o700, parents=True)
    for what, name in FILES.items():
        with open(folder / name, "w", opener=_private) as file:
            file.write(contents[what])
    return folder


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
