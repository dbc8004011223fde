"""Job files: the machine of every node, and how to reach the machines.

    hosts:
      core:    {address: 10.0.0.1}
      bj1:     {address: 10.0.1.1}
      bj2:     {address: 10.0.1.2}
    parties:
      hub:     {scheduler: core, global_server: core}
      beijing: {server: bj1, worker: [bj1, bj2]}
    tls: certs

A party assigns a machine to each of its roles, or a list with one machine per node of that role.
With ``faults.durable=replica``, one of them has the standbys of the global servers.
The network is derived from that, unless ``network`` names one: then the nodes are those of the
network, and a single machine may hold all nodes of a role. ``hosts: slurm`` stands for the machines
of an allocation (`geomx.machines.slurm`), ``hosts: ray`` for those of a Ray cluster, selected by
resources (`geomx.machines.ray`).
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError, near
from geomx.machines import ray, reach, slurm
from geomx.machines.frames import ELSEWHERE
from geomx.options.parsing import build_options, words_of
from geomx.yaml_files import YamlError, read_yaml

ROLES = ("scheduler", "global_server", "server", "worker", "standby")
TABLES = {
    "hosts": "{bj1: {address: 10.0.1.1}}",
    "parties": "{beijing: {server: bj1, worker: [bj1, bj2]}}",
}
FAST_MBPS = 10_000  # of links that the file does not describe; nothing is emulated


@dataclass
class Host:
    """A machine."""

    # Address of the machine for other nodes; auto: GEOMX_HOST on that machine.
    address: str
    # Template of a command that runs a command here; null: as for all machines.
    reach: str | None = None
    # The interpreter that has geomx; null: as for all machines.
    python: str | None = None
    # Working directory of a training script; null: as for all machines.
    directory: str | None = None
    # Further environment variables, in addition to those for all machines.
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class JobFile:
    """A job file's content."""

    # The machines, by the names that the parties use.
    hosts: dict[str, Host]
    # By site and role: one machine, or a list with one for each node.
    parties: dict[str, dict[str, Any]]
    # A name or a file, as in network=, or the content of a file; null: derived from the parties.
    network: Any = None
    # Overrides, applied before those of the command line.
    words: list[str] = field(default_factory=list)
    # Template of a command that runs a command on a machine.
    reach: str = reach.SSH
    # The interpreter that has geomx on the machines; null: the path of this one.
    python: str | None = None
    # Working directory of a training script.
    directory: str = ""
    # Further environment variables of all nodes.
    env: dict[str, str] = field(default_factory=dict)
    # The scheduler's port; 0: any free one.
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    # The folder of `geomx certs`.
    tls: str | None = None
    # Allow connections beyond loopback without TLS, which others can read and change.
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown roles and machines, and invalid addresses, templates and variables."""
        if not isinstance(self.network, str | Mapping | None):
            remedy = "must be a name or a file, or the content of a file"
            raise ConfigError("network", self.network, remedy)
        _check_env(self.env, "env")
        words_of(self.python or "", "python")
        for name, host in self.hosts.items():
            _check_address(host.address, f"hosts.{name}.address")
            _check_env(host.env, f"hosts.{name}.env")
            words_of(host.python or "", f"hosts.{name}.python")
        for template in (self.reach, *(host.reach for host in self.hosts.values())):
            if template is not None:
                reach.check(template, "reach")
        for party, roles in self.parties.items():
            for role, places in roles.items():
                key = f"parties.{party}.{role}"
                if role not in ROLES:
                    raise ConfigError(key, places, f"no such role; {near(role, ROLES)}")
                roles[role] = _names(places, key)
                for name in roles[role]:
                    if name not in self.hosts:
                        remedy = f"no such machine; {near(name, self.hosts)}"
                        raise ConfigError(key, name, remedy)

    def network_content(self) -> Any:
        """Return the value of ``network=``: a name, or the content of a file.

        Raises:
            ConfigError: The network must be derived from the parties, and the central site is not
                unique.
        """
        if self.network is not None:
            return self.network
        access = {"uplink_mbps": FAST_MBPS, "downlink_mbps": FAST_MBPS}
        central = [site for site, roles in self.parties.items() if "scheduler" in roles]
        if len(central) != 1 or "global_server" not in self.parties[central[0]]:
            remedy = "one site has the scheduler and the global servers"
            raise ConfigError("parties", ",".join(self.parties), remedy)
        hub = self.parties[central[0]]
        content: dict[str, Any] = {"name": "machines", "delay_ms": 0, "parties": {}}
        content["central"] = {
            "name": central[0],
            "global_servers": len(hub["global_server"]),
            "workers": len(hub.get("worker", ())),
            **access,
        }
        for site, roles in self.parties.items():
            if site != central[0]:
                content["parties"][site] = {"workers": len(roles.get("worker", ())), **access}
        return content

    def homes(self, cluster: Cluster) -> dict[str, str]:
        """Assign the nodes to machines.

        Args:
            cluster: The network.

        Returns:
            Name of the machine by name of the node.

        Raises:
            ConfigError: A node has no machine, or a role has more machines than nodes.
        """
        groups: dict[tuple[str, str], list[NodeSpec]] = {}
        for node in cluster.nodes:
            groups.setdefault((node.party, node.role), []).append(node)
        for party, roles in self.parties.items():
            for role in roles:
                if (party, role) not in groups:
                    remedy = f"the network has no {role} there"
                    if role == "standby":
                        remedy += " (needs faults.durable=replica, and faults.standby is the site)"
                    raise ConfigError(f"parties.{party}.{role}", ",".join(roles[role]), remedy)
        homes: dict[str, str] = {}
        for (party, role), nodes in groups.items():
            key = f"parties.{party}.{role}"
            names = self.parties.get(party, {}).get(role, [])
            if len(names) == 1:
                names = names * len(nodes)
            if len(names) != len(nodes):
                wanted = f"one machine, or one for each of {len(nodes)}"
                raise ConfigError(key, ",".join(names), f"must be {wanted}")
            homes |= {node.name: name for node, name in zip(nodes, names, strict=True)}
        return homes

    def python_of(self, host: Host) -> list[str]:
        """Return the words of the command that runs the interpreter on `host`."""
        return shlex.split(host.python or self.python or shlex.quote(sys.executable))


def read(file: Path) -> JobFile:
    """Read a job file; paths in it are relative to its folder.

    Args:
        file: The file.

    Raises:
        ConfigError: It is missing or invalid.
    """
    try:
        content = read_yaml(file)
    except YamlError as error:
        raise ConfigError("job", file, str(error)) from error
    if not isinstance(content, Mapping):
        raise ConfigError("job", file, "must be a table with hosts and parties")
    if content.get("hosts") == slurm.NAME:
        content = {**content, "hosts": slurm.hosts()}
    elif content.get("hosts") == ray.NAME:
        _check_table(content, "parties", TABLES["parties"])
        content = {**content, "hosts": ray.hosts(content.get("parties", {}))}
    for key, example in TABLES.items():
        _check_table(content, key, example)
    job = build_options(JobFile, content, "job")
    if job.tls is not None:
        job.tls = str(file.parent / job.tls)
    if isinstance(job.network, str) and (file.parent / job.network).is_file():
        job.network = str((file.parent / job.network).resolve())
    return job


def _check_table(content: Mapping[str, Any], key: str, example: str) -> None:
    """Check that a key, if it is there, holds tables by name."""
    given = content.get(key, {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"job.{key}", given, f"must be a table, such as {example}")
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            remedy = f"must be a name; write {str(name)!r}, with quotes" if name else "needs a name"
            raise ConfigError(f"job.{key}", name, remedy)
        if not isinstance(value, Mapping):
            raise ConfigError(f"job.{key}.{name}", value, f"must be a table, as in {example}")


def _check_address(address: str, key: str) -> None:
    """Check that an address is neither empty nor one of another form, such as ``HOST:PORT``."""
    if not re.fullmatch(r"[^\s\[\]/]+", address) or (":" in address and not _is_ipv6(address)):
        remedy = f"must be a name or an address, without a port or brackets, or {ELSEWHERE}"
        raise ConfigError(key, address, remedy)


def _is_ipv6(address: str) -> bool:
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def _check_env(env: Mapping[str, str], key: str) -> None:
    """Check that the operating system takes environment variables."""
    for name, value in env.items():
        if not re.fullmatch(r"[^=\0]+", name) or "\0" in value:
            raise ConfigError(f"{key}.{name}", value, "is no environment variable: NAME: VALUE")


def _names(places: Any, key: str) -> list[str]:
    names = places if isinstance(places, list) else [places]
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(key, places, "must be a machine, or a list of machines")
    return names
