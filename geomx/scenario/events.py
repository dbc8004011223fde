"""Reads and checks the events of a scenario."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from geomx.cluster import Cluster
from geomx.errors import ConfigError, near
from geomx.network.validators import LEAST_MBPS, MOST_MBPS, MOST_MS
from geomx.options.parsing import build_options
from geomx.scenario.places import find_edge, find_place
from geomx.scenario.programs import SUFFIX
from geomx.yaml_files import YamlError, read_yaml

BETWEEN = ("cut", "reset")
PLACES = ("set", "traffic")
KINDS = (*BETWEEN, "kill", "pause", "leave", "join", *PLACES, "slow")
ENDS = {"cut": "heal", "pause": "resume", "kill": "restart", "slow": "usual", "traffic": "quiet"}
"""The acts that end events with a duration; a kill ends only with ``restart_s``."""

FIGURES = {"set": ("mbps", "delay_ms", "loss"), "traffic": ("bytes", "mbps"), "slow": ("times",)}
"""What events need besides their time and duration: for `PLACES` at least one of these."""

JOINS = "must be {party: NAME, workers: NUMBER}"

TIMES = ("at_s", "at_iteration", "every_s")
"""When an event happens: exactly one of these."""

LONGEST_S = 1_000_000_000
"""The clock's limit: longer times never end in the fabric (``runtime_cpp/core/types.h``)."""

MOST_ITERATIONS = 2**32 - 1
"""Messages number local steps in 32 bits."""

MOST_TIMES = 1_000_000
"""A step of a second then takes eleven days."""

MOST_BYTES = 1e18
"""An exabyte."""

ANY = "any "
"""Prefix of a role: a node of that role is drawn each time."""


@dataclass(frozen=True)
class ScenarioEvent:
    """One event, at a time or repeated.

    Attributes:
        cut: Two sites or nodes between which nothing is delivered for `for_s`; connections stay
            open.
        reset: Two sites or nodes between which all connections break.
        kill: A node whose process is killed, or ``any ROLE`` for one that is drawn.
        pause: A node, or ``any ROLE``, whose process is stopped for `for_s`.
        leave: A worker, or ``any worker``, that leaves after the next step that it begins.
        join: ``party`` and ``workers``: how many workers of the party join (`Scenario.late` says
            which). They count as lost until then, and so does the local server if no worker was
            there before.
        set: Two neighbouring sites or nodes: the edges between them, in both directions, change to
            `mbps`, `delay_ms` and `loss`, as far as given.
        traffic: Two sites or nodes: `bytes` over a TCP connection from the first to the second, or
            `mbps` for `for_s`, which share edges with training.
        slow: A node, or ``any ROLE``, that works `times` as long as usual for `for_s`.
        at_s: Time, in seconds since the start of the run.
        at_iteration: Number of a local step: the event happens as a worker begins it, that one to
            which it happens, or else the first one to do so.
        every_s: Interval of repetition, in seconds.
        random: With `every_s`: intervals are exponentially distributed with that mean.
        for_s: Duration in seconds.
        restart_s: After a kill: seconds until a new process replaces the node; None: never.
        mbps: Bandwidth, or rate of traffic, in Mbit/s.
        delay_ms: One-way delay in milliseconds.
        loss: Share of packets that are lost.
        bytes: Size of traffic.
        times: How many times as long a slow node takes.
    """

    cut: list[str] | None = None
    reset: list[str] | None = None
    kill: str | None = None
    pause: str | None = None
    leave: str | None = None
    join: dict[str, Any] | None = None
    set: list[str] | None = None
    traffic: list[str] | None = None
    slow: str | None = None
    at_s: Annotated[float | None, Interval(ge=0, le=LONGEST_S)] = None
    at_iteration: Annotated[int | None, Interval(ge=1, le=MOST_ITERATIONS)] = None
    every_s: Annotated[float | None, Interval(ge=0.001, le=LONGEST_S)] = None
    random: bool = False
    for_s: Annotated[float | None, Interval(gt=0, le=LONGEST_S)] = None
    restart_s: Annotated[float | None, Interval(gt=0, le=LONGEST_S)] = None
    mbps: Annotated[float | None, Interval(ge=0, le=MOST_MBPS)] = None
    delay_ms: Annotated[float | None, Interval(ge=0, le=MOST_MS)] = None
    loss: Annotated[float | None, Interval(ge=0, lt=1)] = None
    bytes: Annotated[float | None, Interval(gt=0, le=MOST_BYTES)] = None
    times: Annotated[float | None, Interval(gt=0, le=MOST_TIMES)] = None

    @property
    def what(self) -> str:
        """The event's kind, one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of its targets: two sites or nodes, or one."""
        if self.join is not None:
            return (str(self.join["party"]),)
        given = getattr(self, self.what)
        return (given,) if isinstance(given, str) else tuple(given)

    @property
    def lasts_s(self) -> float | None:
        """Duration in seconds; None if the event is instantaneous or permanent."""
        return self.restart_s if self.what == "kill" else self.for_s

    def plain(self) -> dict[str, Any]:
        """Return the dict from which `read_scenario` reads the event."""
        given = dataclasses.asdict(self)
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: value for name, value in given.items() if value != defaults[name]}


def read_scenario(given: Any, cluster: Cluster) -> tuple[ScenarioEvent, ...]:
    """Read the option ``scenario``.

    Args:
        given: A list of events as dicts, or the path of a YAML file that contains one.
        cluster: The nodes and sites that it may name.

    Returns:
        The events, in the order given.

    Raises:
        ConfigError: An event is invalid; the message contains its number.
    """
    if isinstance(given, str) and given.endswith(SUFFIX):
        return ()  # a program, see `read_programs`
    content = _file(given) if isinstance(given, str) else given
    if content is None:
        return ()
    if not isinstance(content, list):
        raise ConfigError("scenario", given, "must be a list of events, or a YAML file of one")
    return tuple(_event(each, f"scenario[{index}]", cluster) for index, each in enumerate(content))


def _file(name: str) -> Any:
    if not name.endswith((".yaml", ".yml")):
        remedy = "must be a list of events, a file NAME.yaml of one, or a program NAME.py"
        raise ConfigError("scenario", name, remedy)
    try:
        return read_yaml(Path(name)) or []
    except YamlError as error:
        raise ConfigError("scenario", name, str(error)) from error


def _event(given: Any, key: str, cluster: Cluster) -> ScenarioEvent:
    if not isinstance(given, Mapping):
        raise ConfigError(key, given, "must be an event, such as {at_s: 30, cut: [A, B], for_s: 5}")
    if not isinstance(given.get("join", {}), Mapping):
        raise ConfigError(f"{key}.join", given["join"], JOINS)
    event = build_options(ScenarioEvent, given, key)
    kinds = [kind for kind in KINDS if getattr(event, kind) is not None]
    if len(kinds) != 1:
        raise ConfigError(key, dict(given), f"must have exactly one of {', '.join(KINDS)}")
    if sum(getattr(event, name) is not None for name in TIMES) != 1:
        raise ConfigError(key, dict(given), "must have a time: at_s or every_s, or at_iteration")
    if event.random and event.every_s is None:
        raise ConfigError(f"{key}.random", "true", "needs every_s, the mean time between")
    what = event.what
    _check_figures(event, given, key)
    lasts = what in ENDS and what != "kill" and event.bytes is None
    if (event.for_s is None) == lasts:
        remedy = f"{what} needs for_s, in seconds" if lasts else f"{what} has no duration"
        raise ConfigError(f"{key}.for_s", given.get("for_s", "null"), remedy)
    always = what == "pause" and event.every_s is not None and not event.targets[0].startswith(ANY)
    if always and (event.for_s or 0.0) >= (event.every_s or 0.0):
        remedy = f"must be less than every_s={event.every_s:g}: the node would never continue"
        raise ConfigError(f"{key}.for_s", event.for_s, remedy)
    if event.restart_s is not None and what != "kill":
        raise ConfigError(f"{key}.restart_s", event.restart_s, "is for kill only")
    if event.join is not None:
        _check_join(event, f"{key}.join", cluster)
    elif what in PLACES:
        _check_places(event, f"{key}.{what}", cluster)
    else:
        _check_targets(event, f"{key}.{what}", cluster)
    return event


def _check_figures(event: ScenarioEvent, given: Mapping[str, Any], key: str) -> None:
    """Check that an event has the figures of its kind, and no others."""
    what, wanted = event.what, FIGURES.get(event.what, ())
    for name in sorted({figure for figures in FIGURES.values() for figure in figures}):
        if getattr(event, name) is not None and name not in wanted:
            raise ConfigError(f"{key}.{name}", given[name], f"{what} has no {name}")
    there = [name for name in wanted if getattr(event, name) is not None]
    if wanted and not there:
        raise ConfigError(key, dict(given), f"{what} needs {' or '.join(wanted)}")
    if what == "traffic" and len(there) > 1:
        raise ConfigError(key, dict(given), "traffic has bytes, or mbps with for_s, and not both")
    if what == "traffic" and event.mbps == 0:
        raise ConfigError(f"{key}.mbps", 0, "traffic needs more than 0 Mbit/s")
    if event.mbps and event.mbps < LEAST_MBPS:
        remedy = f"must be {LEAST_MBPS:g} or more" + (", or 0" if what == "set" else "")
        raise ConfigError(f"{key}.mbps", event.mbps, remedy)


def _check_places(event: ScenarioEvent, key: str, cluster: Cluster) -> None:
    """Check that the edge, or the way, between two places exists in both directions."""
    targets = event.targets
    if len(targets) != 2 or targets[0] == targets[1]:
        raise ConfigError(key, list(targets), "must be two different sites or nodes")
    try:
        for one, other in (targets, targets[::-1]):
            if event.what == "set":
                find_edge(cluster.graph, one, other)
            else:
                cluster.route(find_place(cluster, one), find_place(cluster, other))
    except ValueError as error:
        raise ConfigError(key, list(targets), str(error)) from error
    except KeyError as error:
        raise ConfigError(key, list(targets), "there is no way between the two") from error


def _check_join(event: ScenarioEvent, key: str, cluster: Cluster) -> None:
    assert event.join is not None
    given = event.join
    if set(given) != {"party", "workers"}:
        raise ConfigError(key, given, JOINS)
    sizes = {party.name: len(party.workers) for party in cluster.parties}
    name, count = given["party"], given["workers"]
    if not isinstance(name, str) or name not in sizes:
        raise ConfigError(f"{key}.party", name, f"there is no such party; {near(str(name), sizes)}")
    if type(count) is not int or not 1 <= count <= sizes[name]:
        remedy = f"must be 1 to {sizes[name]}, the number of workers of party {name}"
        raise ConfigError(f"{key}.workers", count, remedy)
    if event.every_s is not None:
        raise ConfigError(key, given, "needs at_s or at_iteration, as it happens once")


def _check_targets(event: ScenarioEvent, key: str, cluster: Cluster) -> None:
    nodes = {node.name for node in cluster.nodes}
    sites = {node.party for node in cluster.nodes}
    targets = event.targets
    if event.what in BETWEEN:
        if len(targets) != 2 or targets[0] == targets[1]:
            raise ConfigError(key, list(targets), "must be two different sites or nodes")
        known = nodes | sites
    else:
        roles: tuple[str, ...] = ("worker", "server", "global_server")
        if event.what == "leave":
            nodes, roles = {node.name for node in cluster.workers}, roles[:1]
        known = nodes | {ANY + role for role in roles}
    for name in targets:
        if name not in known:
            what = "site or node" if event.what in BETWEEN else "node"
            raise ConfigError(key, name, f"there is no such {what}; {near(name, known)}")
    if event.what in BETWEEN and nodes_of(targets[0], cluster) & nodes_of(targets[1], cluster):
        raise ConfigError(key, list(targets), "one of them is part of the other")


def nodes_of(name: str, cluster: Cluster) -> frozenset[int]:
    """Return the ids of a site's nodes, or that of a node."""
    return frozenset(node.id for node in cluster.nodes if name in (node.name, node.party))
