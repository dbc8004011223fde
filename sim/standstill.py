"""Error message for a simulation that cannot continue: which nodes wait for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from geomx.errors import no_initial_value
from geomx.sim.protocols import Running
from geomx.training.pace import NS

_SHOWN = 3  # names of a list that are shown; the others are counted


def standstill(simulation: Running) -> str:
    """Describe which workers and servers wait for which values, and for whom.

    Args:
        simulation: The simulation.

    Returns:
        The end of a sentence that starts with "the simulation".
    """
    said = _lacking(simulation) or [
        *_coordinators(simulation),
        *_workers(simulation),
        *_servers(simulation),
    ]
    now_s = (simulation.env.now + simulation.skipped_ns) / NS
    why = "; ".join(said) if said else "no worker can continue"
    return f"came to a standstill at {now_s:.9g} s: {why}"


def _lacking(simulation: Running) -> list[str]:
    """Return that a first worker which is gone has not given all initial values, if so."""
    cluster, fabric, members = simulation.experiment.cluster, simulation.fabric, simulation.members
    first = cluster.workers[0]
    lost = members is not None and members.is_dead(first.id)
    servers = [node.id for node in cluster.nodes if node.role == "global_server"]
    keys = [key for server in servers for key, number, _, _ in fabric.waits(server) if number == 0]
    if not keys or not (lost or simulation.workers[first.id].ended):
        return []
    return [no_initial_value(first.name, lost, simulation.tensor_name(min(keys)))]


def _coordinators(simulation: Running) -> Iterator[str]:
    """Yield the coordinators of overlays that all else waits for."""
    cluster, selection = simulation.experiment.cluster, simulation.experiment.selection
    for node in cluster.nodes:
        for number in simulation.fabric.orders_due(node.id):
            yield f"{selection.coordinator(cluster, number)} gives no order"


def _workers(simulation: Running) -> Iterator[str]:
    """Yield what workers wait for, grouped by the awaited value."""
    together: dict[str, list[str]] = defaultdict(list)
    cluster, selection = simulation.experiment.cluster, simulation.experiment.selection
    for worker in simulation.workers.values():
        if what := worker.standing():
            together[what].append(worker.spec.name)
            continue
        if worker.ended:
            continue
        if simulation.fabric.awaits_reply(worker.spec.id):
            coordinator = selection.coordinator(cluster, worker.steps.sync.coordinator or 0)
            together[f"an answer of {coordinator}"].append(worker.spec.name)
            continue
        for key, round_number, keys, (server, *_) in simulation.fabric.waits(worker.spec.id)[:1]:
            values = f"{_value(simulation, key, round_number)}{_more(keys - 1, 'key')}"
            together[f"{values} from {cluster.nodes[server].name}"].append(worker.spec.name)
    for what, names in together.items():
        yield f"{_listed(names)} wait{'s' * (len(names) == 1)} for {what}"


def _servers(simulation: Running) -> Iterator[str]:
    """Yield the nodes that servers wait for, for the first key of each server."""
    cluster = simulation.experiment.cluster
    ended = {worker.spec.id for worker in simulation.workers.values() if worker.ended}
    for node in cluster.nodes:
        if node.role not in ("server", "global_server"):
            continue
        for key, round_number, _, lacking in simulation.fabric.waits(node.id)[:1]:
            names = [
                cluster.nodes[number].name + (" (which has ended)" if number in ended else "")
                for number in lacking
            ]
            whom = f" from {_listed(names)}" if names else ""
            yield f"{node.name} waits for {_value(simulation, key, round_number)}{whom}"


def _value(simulation: Running, key: int, round_number: int) -> str:
    name = simulation.tensor_name(key)
    return f"round {round_number} of {name}" if round_number else f"the initial value of {name}"


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    text = ", ".join(shown[:_SHOWN])
    return text + _more(len(shown) - _SHOWN)


def _more(count: int, noun: str = "") -> str:
    counted = f" {noun}{'s' * (count > 1)}" if noun else ""
    return f" and {count} more{counted}" if count > 0 else ""
