"""What lets a process into a run and protects what it says there: a token, and perhaps TLS.

The token says which run. It is made anew for every run, travels in the environment or on a
launcher's line, and is the first thing on every connection. Beyond this machine it is not enough:
whoever sees the packets sees it. There, connections are TLS 1.3 with a certificate on both sides
(`geomx.machines.certs`); a certificate says which node.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from geomx import _core
from geomx.errors import NO_TLS, ConfigError

TOKEN, TLS = "GEOMX_TOKEN", "GEOMX_TLS"
"""Environment variables: the token, and the folder with a node's `FILES`."""

FILES = {"authority": "authority.pem", "certificate": "node.pem", "key": "node.key"}
"""Files of a node's folder: the trusted authority, the node's certificate, and its key."""


def has_tls() -> bool:
    """Whether the compiled core was built with OpenSSL."""
    return _core.build_info()["tls"] != "no_openssl"


def is_loopback(address: str) -> bool:
    """Whether an address, or a name, is this machine's own and nobody else's."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def check(key: str, host: str, tls: object, insecure: bool) -> None:
    """Refuse to listen beyond this machine without TLS.

    Args:
        key: What the user typed `host` for.
        host: The address to listen on.
        tls: True in a boolean context where there are certificates.
        insecure: The user insists.

    Raises:
        ConfigError: There are none, or this geomx cannot use them. Names the remedy.
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
    """Contents of a node's files by what they are.

    Raises:
        ConfigError: One is missing.
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
    """A node's files as `geomx._core.Loop` takes them."""
    if folder is None:
        return None
    authority, certificate, key = (str(folder / name) for name in FILES.values())
    return authority, certificate, key


def folder_from_environment() -> Path | None:
    """Where this process's files are, if its launcher gave it any."""
    folder = os.environ.get(TLS)
    return Path(folder) if folder else None


def write_files(folder: Path, contents: Mapping[str, str]) -> Path:
    """Write what `read_files` read, for this user alone. Returns `folder`."""
    folder.mkdir(mode=0o700, parents=True)
    for what, name in FILES.items():
        with open(folder / name, "w", opener=_private) as file:
            file.write(contents[what])
    return folder


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
