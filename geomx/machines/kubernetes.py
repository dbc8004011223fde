"""``geomx manifest``: a job as Kubernetes objects, with one StatefulSet per party.

The pods of a party's StatefulSet are its nodes in the order of the network, each running ``geomx
node``; a headless Service gives them names, a ConfigMap holds the experiment, a Secret the token
and, if the job file has ``tls``, the certificates. A pod stays after its node has finished, so that
Kubernetes does not start the run again; if a node fails its pod is restarted, and so are the
others, which have lost it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from geomx.cluster import NodeSpec
from geomx.errors import ConfigError
from geomx.live import access
from geomx.live.spec import Spec
from geomx.machines.certs import folder_of
from geomx.machines.jobfile import JobFile
from geomx.machines.launch import composed_experiment

PORT = 7400  # of the scheduler, unless the job file sets one
HOME = "/geomx"
"""Directory of the manifest's files in the pods; the run's directory is ``run`` in it."""

LONGEST = 52
"""Characters of a StatefulSet's name, which with a hash of Kubernetes becomes a label, of 63."""

OF_MACHINES = {
    "python": "the image's geomx is run",
    "directory": "`directory` of the job file is that of all pods",
    "env": "`env` of the job file is set in all pods",
}
"""Options of a machine that a manifest leaves out, and what holds instead."""


def manifest(
    job: JobFile,
    name: str,
    image: str,
    overrides: Sequence[str] = (),
    command: Sequence[str] = (),
    claim: str | None = None,
) -> str:
    """Return a job as YAML for ``kubectl apply``.

    Args:
        job: The job file; its machines are ignored, with a warning where they have options.
        name: Name of the job and prefix of its objects.
        image: Image with geomx and the script.
        overrides: Overrides of the experiment.
        command: Command that workers run instead of the workload.
        claim: A PersistentVolumeClaim that all nodes can write to, for notes and parameters; None:
            each pod keeps its own.

    Raises:
        ConfigError: Neither ``tls`` nor ``insecure`` is set, names of parties give equal labels, or
            the directory is not absolute.
    """
    access.check("manifest", name, job.tls, job.insecure)
    _check_options(job)
    name = _label(name)
    experiment = composed_experiment(job, overrides)
    spec = Spec.of(experiment, script=bool(command))
    parties: dict[str, list[NodeSpec]] = {}
    for node in spec.cluster.nodes:
        parties.setdefault(node.party, []).append(node)
    labels = {party: _label(f"{name}-{party}") for party in parties}
    if len(set(labels.values())) < len(labels):
        raise ConfigError("parties", ",".join(parties), "need names that differ as DNS labels")
    home = spec.cluster.scheduler
    pod = f"{labels[home.party]}-{parties[home.party].index(home)}"
    port = job.port or PORT
    scheduler = f"{pod}.{name}:{port}"
    secret = {"token": secrets.token_hex(16)}
    objects = [_service(name), _object("ConfigMap", name, data={"experiment.json": spec.to_json()})]
    for party, nodes in parties.items():
        items = [] if job.tls is None else _certificates(job.tls, nodes, labels[party], secret)
        container = _container(name, image, _script(nodes, scheduler, port, command, job), job.env)
        if command and job.directory:
            container["workingDir"] = job.directory
        objects.append(_set(name, labels[party], len(nodes), container, items, claim))
    objects.append(_object("Secret", name, stringData=secret))
    return yaml.safe_dump_all(objects, sort_keys=False)


_LISTENS = """\
node= asked=
trap 'if [ "$node" ]; then asked=yes; kill -TERM "$node"; else asked=early; fi' TERM"""
"""Beginning of a pod's script: passes SIGTERM on to the node, from before that starts.

The kernel delivers SIGTERM to a pod's first process only if that handles it.
"""

_SUPERVISES = """\
node=$!
[ "$asked" != early ] || kill -TERM "$node"
wait "$node"; status=$?
while kill -0 "$node" 2> /dev/null; do wait "$node"; status=$?; done
[ "$status$asked" = 0 ] || exit "$status"
trap 'exit 0' TERM
sleep infinity & wait"""
"""End of a pod's script, which stays when the node has finished. ``wait`` ends with SIGTERM."""


def _check_options(job: JobFile) -> None:
    """Refuse a directory that pods cannot have, and warn of options of machines."""
    if job.directory and not job.directory.startswith("/"):
        remedy = "must be an absolute path, which the pods' image or volumes have"
        raise ConfigError("directory", job.directory, remedy)
    told = ["python"] if job.python else []
    for name, host in job.hosts.items():
        told += [f"hosts.{name}.{key}" for key in OF_MACHINES if getattr(host, key)]
    for key in told:
        instead = OF_MACHINES[key.rpartition(".")[2]]
        warnings.warn(f"{key} has no effect in a manifest: {instead}", stacklevel=3)


def _script(
    nodes: Sequence[NodeSpec], scheduler: str, port: int, command: Sequence[str], job: JobFile
) -> str:
    """Return the script of a party's pods, which runs the node with the pod's number."""
    cases = []
    for number, node in enumerate(nodes):
        arguments = ["geomx", "node", "--role", node.role, "--name", node.name]
        arguments += ["--directory", f"{HOME}/run"]
        arguments += ["--tls", f"{HOME}/tls/{number}"] if job.tls else ["--insecure"]
        if node.role == "scheduler":
            arguments += ["--experiment", f"{HOME}/experiment.json", "--port", str(port)]
        else:
            arguments += ["--scheduler", scheduler]
        line = _literal(shlex.join(arguments)) + ' --host "$POD_IP"'
        if node.role == "worker" and command:
            line += " -- " + _literal(shlex.join(command))
        cases.append(f"  {number}) {line} & ;;")
    return "\n".join([_LISTENS, 'case "${HOSTNAME##*-}" in', *cases, "esac", _SUPERVISES]) + "\n"


def _certificates(
    certs: str, nodes: Sequence[NodeSpec], label: str, secret: dict[str, str]
) -> list[dict[str, str]]:
    """Add the nodes' files to the secret; return their paths in the pods."""
    items = []
    for number, node in enumerate(nodes):
        files = access.read_files(folder_of(Path(certs), node.name))
        for what, file in access.FILES.items():
            key = f"{label}-{number}-{file}"
            secret[key] = files[what]
            items.append({"key": key, "path": f"{number}/{file}"})
    return items


def _service(name: str) -> dict[str, Any]:
    return _object(
        "Service",
        name,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # nodes look for each other before all are ready
            "selector": {"job": name},
        },
    )


def _container(name: str, image: str, script: str, env: Mapping[str, str]) -> dict[str, Any]:
    token = {"secretKeyRef": {"name": name, "key": "token"}}
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return {
        "name": "node",
        "image": image,
        "command": ["sh", "-c", script],
        "env": [
            *({"name": key, "value": _literal(value)} for key, value in env.items()),
            {"name": access.TOKEN, "valueFrom": token},
            {"name": "POD_IP", "valueFrom": address},
        ],
    }


def _literal(text: str) -> str:
    """Return a text that Kubernetes, which replaces ``$(NAME)``, turns into the given one."""
    return text.replace("$", "$$")


def _set(
    name: str,
    label: str,
    replicas: int,
    container: dict[str, Any],
    items: list[dict[str, str]],
    claim: str | None,
) -> dict[str, Any]:
    run: dict[str, Any] = {"name": "run", "emptyDir": {}}
    if claim is not None:
        run = {"name": "run", "persistentVolumeClaim": {"claimName": claim}}
    volumes = [run, {"name": "experiment", "configMap": {"name": name}}]
    mounts: list[dict[str, Any]] = [
        {"name": "run", "mountPath": f"{HOME}/run"},
        {
            "name": "experiment",
            "mountPath": f"{HOME}/experiment.json",
            "subPath": "experiment.json",
        },
    ]
    if items:
        secret = {"secretName": name, "items": items, "defaultMode": 0o400}
        volumes.append({"name": "tls", "secret": secret})
        mounts.append({"name": "tls", "mountPath": f"{HOME}/tls", "readOnly": True})
    container = {**container, "volumeMounts": mounts}
    labels = {"job": name, "party": label}
    return _object(
        "StatefulSet",
        label,
        "apps/v1",
        spec={
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": volumes},
            },
        },
    )


def _object(kind: str, name: str, version: str = "v1", **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def _label(name: str) -> str:
    """Return a name in the spelling of Kubernetes, which begins with a letter.

    Of names that are too long, different ones differ by a hash at the end.
    """
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not label[:1].isalpha():
        label = f"job-{label}".strip("-")
    if len(label) <= LONGEST:
        return label
    end = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{label[: LONGEST - 9].strip('-')}-{end}"
