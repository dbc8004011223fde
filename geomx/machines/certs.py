"""``geomx certs``: a private certificate authority, and one certificate for every node of a job.

    certs/authority.key            stays on the machine where it was created
    certs/authority.pem            trusted by all nodes
    certs/nodes/NAME/              files for the node's machine: `geomx.live.access.FILES`

A certificate contains the node's name as a URI, ``geomx:NAME``, and that of a standby also the name
of its global server, whose place it may take. The scheduler's contains its role as another URI. A
certificate contains no addresses, so that a node may move to another machine. Keys and certificates
are created by the ``openssl`` command: keys on the curve P-256, certificates of limited validity.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.live.access import FILES

DAYS = 365
AUTHORITY = "authority.key"


def folder_of(certs: Path, name: str) -> Path:
    """Return the folder with the files of a node.

    Args:
        certs: Folder of the authority.
        name: Name of the node.
    """
    return certs / "nodes" / quote(name.replace("/", "-"), safe="")


def make(certs: Path, cluster: Cluster, days: int = DAYS) -> list[Path]:
    """Create the authority, unless it exists, and the files of all nodes that lack one of them.

    Args:
        certs: The folder; created if necessary.
        cluster: The nodes of the job.
        days: Validity of the new certificates.

    Returns:
        The folders of the nodes with new certificates.

    Raises:
        ConfigError: The openssl command is not installed, or only one file of the authority exists.
        GeomxError: openssl failed.
    """
    if shutil.which("openssl") is None:
        remedy = "needs the openssl command (package openssl)"
        raise ConfigError("certs", certs, remedy)
    certs.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, key = certs / FILES["authority"], certs / AUTHORITY
    if authority.exists() != key.exists():
        raise ConfigError("certs", certs, f"needs both {authority.name} and {key.name}, or neither")
    if not authority.exists():
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", key, "-out", authority, "-days", str(10 * days),
            "-subj", "/CN=geomx authority",
            "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip
    made = []
    for node in cluster.nodes:
        folder = folder_of(certs, node.name)
        if not all((folder / name).exists() for name in FILES.values()):
            names = [node] if node.role != "standby" else [node, cluster.stood_by(node)]
            _issue(certs, names, folder, days)
            made.append(folder)
    return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256")


def _issue(certs: Path, nodes: Sequence[NodeSpec], folder: Path, days: int) -> None:
    """Issue one certificate that names all `nodes`."""
    names = ",".join(f"URI:geomx:{quote(node.name, safe='/')}" for node in nodes)
    if nodes[0].role == "scheduler":
        names += ",URI:geomx-role:scheduler"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    request, extensions = folder / "request.pem", folder / "extensions.cnf"
    extensions.write_text(
        f"subjectAltName={names}\n"
        "basicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth,clientAuth\n",
        encoding="ascii",
    )
    try:
        _openssl(
            "req", "-new", *_NEW_KEY, "-keyout", folder / FILES["key"], "-out", request,
            "-subj", "/CN=geomx node",
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", certs / FILES["authority"],
            "-CAkey", certs / AUTHORITY, "-set_serial", f"0x{os.urandom(16).hex()}",
            "-days", str(days), "-sha256", "-extfile", extensions,
            "-out", folder / FILES["certificate"],
        )  # fmt: skip
    finally:
        request.unlink(missing_ok=True)
        extensions.unlink(missing_ok=True)
    shutil.copy(certs / FILES["authority"], folder)


def _openssl(*argv: str | Path) -> None:
    command: Sequence[str] = ["openssl", *map(str, argv)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, umask=0o077, timeout=60
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()
        raise GeomxError(f"openssl {argv[0]} failed: {reason[-1] if reason else done.returncode}")
