"""``geomx manifest``: a job as Kubernetes objects, with one StatefulSet per party.

The pods of a party's StatefulSet are its nodes in the order of the network, each running ``geomx
node``; a headless Service gives them names, a ConfigMap holds the experiment, a Secret the token
and, if the job file has ``tls``, the certificates. A pod stays after its node has finished, so that
Kubernetes does not start the run again; if a node fails its pod is restarted, and so are the
others, which have lost it.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
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
        job: The job file; its machines are ignored.
        name: Name of the job and prefix of its objects.
        image: Image with geomx and the script.
        overrides: Overrides of the experiment.
        command: Command that workers run instead of the workload.
        claim: A PersistentVolumeClaim that all nodes can write to, for notes and parameters; None:
            each pod keeps its own.

    Raises:
        ConfigError: Neither ``tls`` nor ``insecure`` is set, or names of parties give equal labels.
    """
    access.check("manifest", name, job.tls, job.insecure)
    name = _label(name)
    experiment = composed_experiment(job, overrides)
    spec = Spec.of(experiment, script=bool(command))
    parties: dict[str, list[NodeSpec]] = {}
    for node in spec.cluster.nodes:
        parties.setdefault(node.party, []).append(node)
    labels = {party: f"{name}-{_label(party)}" for party in parties}
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
        script = _script(nodes, scheduler, port, command, job)
        objects.append(_set(name, labels[party], len(nodes), image, script, items, claim))
    objects.append(_object("Secret", name, stringData=secret))
    return yaml.safe_dump_all(objects, sort_keys=False)


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
        line = shlex.join(arguments) + ' --host "$POD_IP"'
        if node.role == "worker" and command:
            line += " -- " + shlex.join(command)
        cases.append(f"  {number}) {line};;")
    lines = ['case "${HOSTNAME##*-}" in', *cases, "esac && exec sleep infinity"]
    return "\n".join(lines) + "\n"


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


def _set(
    name: str,
    label: str,
    replicas: int,
    image: str,
    script: str,
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
    token = {"secretKeyRef": {"name": name, "key": "token"}}
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    container = {
        "name": "node",
        "image": image,
        "command": ["sh", "-c", script],
        "env": [
            {"name": access.TOKEN, "valueFrom": token},
            {"name": "POD_IP", "valueFrom": address},
        ],
        "volumeMounts": mounts,
    }
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
    """Return a name in the spelling of Kubernetes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "job"
