"""Invalid results of every method of plugins' objects: an error that names plugin, hook, class and
method, and what is allowed, equal in both modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.errors import GeomxError, PluginError
from geomx.plugin.calling import hooks
from geomx.plugin.contracts import CheckedPolicy, check_names, check_part
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.testing.worlds import FAST, NETWORK, build
from geomx.training.steps import Steps
from tests.laws import registry_with
from tests.strangers import accel, install

pytestmark = pytest.mark.interpreter  # signatures and annotations

SOLO = {
    **NETWORK,
    "central": {"name": "hub", **FAST},
    "parties": {"east": {"workers": 1, **FAST}},
}


class Half:
    whole: Any = frozenset[str]()
    survives_holes: Any = True

    def layout(self, spec: Any) -> Any:
        return {"values": (spec["values"][0], "f2")}

    def encode(self, parts: Any) -> Any:
        return {"values": parts["values"].astype("f2")}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": parts["values"].astype("f4")}


class Mind:
    def on_report(self, source: int, values: Any, now_s: float) -> Any:
        return []


class Side:
    def complete(self, shard: Any, round_number: int, last: bool, total: Any) -> Any:
        return True, total


class Closes:
    def closes_at(
        self, shard: Any, contributions: Any, awaited: Any, before_s: Any, now_s: float
    ) -> Any:
        return None


class Moves:
    def update(self, weight: Any, gradient: Any, learning_rate: float) -> Any:
        return weight - learning_rate * gradient


class Cuts:
    def cut(self, slices: Any, row_bytes: float, round_number: int) -> Any:
        return slices


class Every(geomx.SyncPolicy):
    """A policy with a part on workers and a coordinator."""

    def coordinators(self, cluster: Any) -> Any:
        return [geomx.Site(cluster.scheduler, Mind())]


class Told(geomx.WorkerSync):
    def after_step(self, step: int) -> Any:
        return True

    def finished(self, step: int) -> Any:
        return step == 2


class Worker(Every):
    """A policy whose workers' parts are `Told` with changed members."""

    changes: dict[str, Any] = {}  # noqa: RUF012

    def worker(self, cluster: Any, worker: Any, steps: int) -> Any:
        return changed(Told, **self.changes)


def changed(base: type, **members: Any) -> Any:
    """Return an instance of `base` with other members; functions accept any arguments."""

    def method(answer: Any) -> Any:
        return lambda self, *given: answer(*given) if callable(answer) else answer

    plain = ("exchange", "together", "staleness_bound", "coordinator", "whole", "linear")
    plain += ("survives_holes", "stage", "in_every_slice", "changes", "togethr", "makesup")
    plain += ("makes_up", "relative", "besteffort")
    bodies = {n: value if n in plain else method(value) for n, value in members.items()}
    return type(base.__name__, (base,), bodies)()


def policy(**members: Any) -> Any:
    return lambda *given: changed(geomx.SyncPolicy, **members)


def worker(**members: Any) -> Any:
    return lambda *given: changed(Worker, changes=members)


def site(host: Any, native: Any) -> Any:
    return policy(coordinators=lambda cluster: [geomx.Site(host(cluster), native)])


def overlay(**fields: Any) -> Any:
    """Return an overlay of the global group, with its coordinator on the scheduler."""

    def answer(group: Any) -> Any:
        if group.level != "global":
            return None
        plain = {"site": geomx.Site(group.scheduler, Mind())}
        return geomx.Overlay(**{**plain, **{k: v(group) for k, v in fields.items()}})

    return answer


def ordering(target: int) -> Any:
    """Return an overlay whose coordinator orders all contributions to be sent to `target`."""

    class Orders(Mind):
        def on_report(self, source: int, values: Any, now_s: float) -> Any:
            report = geomx.OverlayReport.read(values)
            ready = report.what == "ready"
            return [(source, geomx.overlay_order("push", report, target))] if ready else []

    return overlay(site=lambda group: geomx.Site(group.scheduler, Orders()))


def replying(target: int | None) -> Any:
    """Return an overlay whose coordinator sends a number to `target`; None: to who reports."""

    class Replies(Mind):
        def on_report(self, source: int, values: Any, now_s: float) -> Any:
            return [(source if target is None else target, [1.0])]

    return overlay(site=lambda group: geomx.Site(group.scheduler, Replies()))


def costs(work: str, figures: Any) -> Any:
    return lambda simulation: simulation.costs.__setitem__(work, figures)


def charges(given: Any, name: str = "bad") -> Any:
    return lambda simulation: simulation.charge(name, given)


def shards(*pieces: Any) -> Any:
    return lambda cluster: changed(geomx.Partitioner, cut=lambda *given: list(pieces))


def codec(**members: Any) -> Any:
    return lambda link: (
        changed(Half, **members) if (link.kind, link.direction) == ("wan", "push") else None
    )


def slices(*made: Any) -> Any:
    return lambda link: changed(Cuts, cut=lambda given, *more: list(made))


P, W = "geomx_sync_policy", "geomx_sync_policy: Told"
BOOL = "must be True or False, not"
TABLE: list[tuple[str, Any, str]] = [
    # sync policies
    (
        P,
        lambda cluster: type("Mine", (geomx.SyncPolicy,), {"after_step": lambda self, n: True})(),
        r"Mine.after_step\(self, n\) must be after_step\(self, step, steps\)",
    ),
    (P, policy(after_step="yes"), rf"SyncPolicy.after_step\(\) {BOOL} 'yes'"),
    (P, policy(after_step=None), rf"after_step\(\) {BOOL} None"),
    (P, policy(after_step=1), rf"after_step\(\) {BOOL} 1"),
    (P, policy(push_scale="half"), r"push_scale\(\) must be a finite number, not 'half'"),
    (P, policy(push_scale=float("nan")), r"push_scale\(\) must be a finite number, not nan"),
    (P, policy(push_scale=1e300), r"push_scale\(\) must be a finite number, not 1e\+300"),
    (P, policy(global_optimizer=3), r"global_optimizer\(\) must be None or a dict such .*not 3"),
    (P, policy(global_optimizer={"rate": 1}), r"global_optimizer\(\) must be None or a dict such"),
    (
        P,
        policy(global_optimizer={"name": "sgd", "learning_rate": "fast"}),
        r"global_optimizer\(\)\['learning_rate'\] must be a number, not 'fast'",
    ),
    (P, policy(exchange="parameters"), r"local_optimizer\(\) must be an optimizer where .*None"),
    (P, policy(local_optimizer="sgd"), r"local_optimizer\(\) must be None or a dict such as"),
    (P, policy(exchange="deltas"), "exchange must be 'gradients' or 'parameters', not 'deltas'"),
    (P, policy(together="no"), f"together {BOOL} 'no'"),
    (P, policy(staleness_bound=-1), "staleness_bound must be None or rounds, a whole number from"),
    (P, policy(coordinators=3), r"coordinators\(\) must be a list of geomx.Site, not 3"),
    (P, policy(coordinators=[3]), r"coordinators\(\)\[0\] must be a geomx.Site, not 3"),
    (
        P,
        site(lambda cluster: cluster.workers[0], Mind()),
        r"coordinators\(\)\[0\].host must be a local server or the scheduler, not 'east/worker0'",
    ),
    (P, site(lambda cluster: cluster.scheduler, 3), r"\[0\].native must be a Coordinator or a Nat"),
    (
        P,
        site(lambda cluster: cluster.scheduler, geomx.Native("coordinator", "nobody")),
        "geomx_sync_policy: Native: .*nobody",
    ),
    (P, policy(worker=3), r"worker\(\) must be a geomx.WorkerSync, not 3"),
    (P, policy(party_policy=3), r"party_policy\(\) must be a PartySync, a Native or None, not 3"),
    (P, policy(party_policy=lambda *_: Cuts()), r" \(which lacks complete of a PartySync\)$"),
    (
        P,
        policy(party_policy=geomx.Native("codec", "fp16")),
        r"party_policy\(\).kind must be 'policy', not 'codec'",
    ),
    (P, policy(party_policy=geomx.Native("policy", "nobody")), "sync_policy: Native: .*nobody"),
    (
        P,
        policy(global_optimizer={"name": "sdg"}),
        r"global_optimizer\(\)\['name'\] must be one of adagrad, .*, not 'sdg'",
    ),
    (
        P,
        policy(global_optimizer={"name": "sgd", "lr": 1}),
        r"global_optimizer\(\) must be an optimizer \(optimizer sgd has no option lr; it takes",
    ),
    # workers' parts
    (P, worker(after_step="yes"), rf"Told.after_step\(\) {BOOL} 'yes'"),
    (P, worker(finished=None), rf"Told.finished\(\) {BOOL} None"),
    (P, worker(coordinator=1), "Told.coordinator must be None or a position in coord.* 0 to 0"),
    (P, worker(coordinator=0, report=3), r"Told.report\(\) must be a list of numbers, not 3"),
    (P, worker(coordinator=0, report=["x"]), r"Told.report\(\) must be a finite number, not 'x'"),
    # local servers' parts
    (
        P,
        policy(party_policy=changed(Side, complete=None)),
        r"Side.complete must return \(whether it goes on to the global servers, values\), not None",
    ),
    (
        P,
        policy(party_policy=changed(Side, complete=lambda s, n, last, total: (1.5, total))),
        r"Side.complete must return \(whether it goes on",
    ),
    (
        P,
        policy(
            party_policy=changed(
                Side, complete=lambda s, n, last, total: (True, total.astype("f8"))
            )
        ),
        "Side.complete made values of float64, not float32",
    ),
    # placements and partitioners
    (
        "geomx_placement",
        lambda cluster, tensors: changed(geomx.Placement, server=9),
        r"Placement.server\(\) must be the index of a global server, a whole number from 0 to 1, "
        "not 9",
    ),
    (
        "geomx_placement",
        lambda cluster, tensors: changed(geomx.Placement, server="hub"),
        r"Placement.server\(\) must be the index of a global server, .* not 'hub'",
    ),
    ("geomx_partitioner", shards(3), r"Partitioner.cut\(\) must be a list of geomx.Shard"),
    (
        "geomx_partitioner",
        shards(geomx.Shard(0, 1)),
        r"Partitioner.cut\(\) must be shards that cover the \d+ elements of .* in order",
    ),
    (
        "geomx_partitioner",
        shards(geomx.Shard(0, 1.5)),  # type: ignore[arg-type]
        r"Partitioner.cut\(\) must be shards of whole numbers",
    ),
    # codecs
    ("geomx_codec", codec(layout=3), r"Half.layout must return a dict of name: \(length, dtype\)"),
    ("geomx_codec", codec(encode=3), "Half.encode must return a dict of arrays, as layout promis"),
    ("geomx_codec", codec(decode=3), 'Half.decode must return {"values": array}'),
    (
        "geomx_codec",
        codec(decode=lambda parts, length: {"values": np.zeros(length)}),
        'Half.decode made "values" of float64, not float32',
    ),
    ("geomx_codec", codec(whole="codes"), "Half.whole must be a set of parts' names, not 'codes'"),
    ("geomx_codec", codec(survives_holes="yes"), f"Half.survives_holes {BOOL} 'yes'"),
    ("geomx_codec", codec(linear=3), f"Half.linear {BOOL} 3"),
    ("geomx_codec", codec(linear=np.True_), "Half.linear must be Python's .*, not numpy's True"),
    ("geomx_codec", codec(stage="last"), "Half.stage must be one of select, quantise, cast"),
    (
        "geomx_codec",
        lambda link: geomx.Native("codec", "fp16", {"k": "x"}),  # type: ignore[dict-item]
        r"Native.options\['k'\] must be a number, not 'x'",
    ),
    ("geomx_codec", lambda link: geomx.BySize("x"), "BySize.bound must be elements of a large"),  # type: ignore[arg-type]
    ("geomx_codec", lambda link: geomx.BySize(9, [3]), "BySize.small must be a list of codecs"),  # type: ignore[list-item]
    # slicers
    ("geomx_slicer", slices((0, 3, 0, 0), (3, 9**6, 0, 0)), "begins at row 3, no multiple of 8"),
    ("geomx_slicer", slices((0, 8, 0, 99)), "a slice on channel 99; there are 0 .* to 63"),
    ("geomx_slicer", slices((0, 8, 0, -1)), "a slice on channel -1; there are 0 .* to 63"),
    ("geomx_slicer", slices((0, 8)), r"Cuts.cut must return slices of four .*, not \(0, 8\)"),
    (
        "geomx_slicer",
        lambda link: changed(Cuts, cut=lambda given, *more: [*given, *given]),
        r"Cuts.cut made slices that do not cover rows 0 to \d+ once each: row 0 is in two of them",
    ),
    ("geomx_slicer", slices(3), "Cuts.cut must return slices of four whole numbers .*, not 3"),
    (
        "geomx_slicer",
        slices((0, 8, 2**31, 0)),
        r"must return slices of four whole numbers of 32 bits, not \(0, 8, 2147483648, 0\)",
    ),
    ("geomx_slicer", slices((0, 8, 0, 1)), "a slice on channel 1, which needs .* best_effort"),
    (
        "geomx_slicer",
        lambda link: changed(Cuts, cut=None),
        r"Cuts.cut must return a list of \(first row, rows, priority, channel\), not None",
    ),
    ("geomx_slicer", lambda link: geomx.Native("slicer", "dgt", grace_s=-1), "Native.grace_s must"),
    # overlays
    ("geomx_overlay", overlay(push=lambda group: "yes"), f"Overlay.push {BOOL} 'yes'"),
    ("geomx_overlay", overlay(site=lambda group: 3), "Overlay.site must be a geomx.Site, not 3"),
    (
        "geomx_overlay",
        overlay(site=lambda group: geomx.Site(group.members[0], Mind())),
        "Overlay.site.host must be the group's root or the scheduler, not 'east/server'",
    ),
    (
        "geomx_overlay",
        ordering(999),
        "an order to (east|west)/server to push key . round 1 to node 999: that node is none of",
    ),
    (
        "geomx_overlay",
        replying(None),
        "a reply to .*server.* that is no order; geomx.overlay_order makes orders",
    ),
    ("geomx_overlay", replying(999), "Replies answers node 999, but .* talks with .*east/server"),
    # optimizers
    ("geomx_optimizer", lambda: changed(Moves, update=None), "update returned None, not float32"),
    (
        "geomx_optimizer",
        lambda: changed(Moves, update=lambda weight, *given: weight.astype("f8")),
        "Moves.update made values of float64, not float32",
    ),
    # observers
    (
        "geomx_events",
        lambda events: events.subscribe(3),
        "geomx_events failed: TypeError: events.subscribe needs a function .*, not 3",
    ),
    (
        "geomx_events",
        lambda events: events.subscribe(lambda key, events: None),
        "geomx_events failed: TypeError: events.subscribe needs a function of a list of events",
    ),
    # endpoint costs
    (
        "geomx_sim",
        costs("encode", "slow"),
        r"simulation.costs\['encode'\] must be \(seconds per message, seconds per byte\).*'slow'",
    ),
    ("geomx_sim", costs("encode", (1.0, -1.0)), r"costs\['encode'\] must be .* 0 or more each"),
    ("geomx_sim", costs("encode", (0.0, True)), r"costs\['encode'\] must be .* 0 or more each"),
    ("geomx_sim", costs("encod", (0.0, 0.0)), "no 'encod'; did you mean encode"),
    ("geomx_sim", charges(3), "costs=3 of bad: must be a geomx.CodecCosts"),
    ("geomx_sim", charges(geomx.CodecCosts(), "fp17"), "no chosen accelerator fp17; allowed: bad"),
    ("geomx_sim", charges(geomx.CodecCosts("x")), "encode_message_s='x': must be 0 or more sec"),
]  # fmt: skip


def plugin(hook: str, answer: Any) -> Any:
    """Return a plugin with one hook, whose result is that of `answer` with the hook's arguments."""
    arguments = ", ".join(hooks()[hook])
    space: dict[str, Any] = {"answer": answer}
    exec(f"def {hook}(self{', ' * bool(arguments)}{arguments}): return answer({arguments})", space)
    return type("Bad", (), {hook: geomx.hookimpl(space[hook])})()


@pytest.mark.parametrize(("hook", "answer", "words"), TABLE, ids=range(len(TABLE)))
def test_an_invalid_result_is_one_sentence(
    hook: str, answer: Any, words: str, tmp_path: Path
) -> None:
    bad = registry_with(bad=("accel", plugin(hook, answer)))
    with pytest.raises(PluginError, match=words) as caught:
        experiment = build(bad, accel=[("bad", {})], network=NETWORK, iterations=3)
        execute(experiment, tmp_path / "run")
    assert str(caught.value).startswith(f"accel bad: {hook}")
    assert "\n" not in str(caught.value)


LIVE = {
    "policy": """
class Policy(geomx.SyncPolicy):
    def push_scale(self, cluster, worker):
        return "half"

class Plugin(Base):
    @geomx.hookimpl
    def geomx_sync_policy(self, cluster):
        return Policy()
""",
    "slicer": """
class Slicer:
    def cut(self, slices, row_bytes, round_number):
        return [(first, rows, priority, 99) for first, rows, priority, channel in slices]

class Plugin(Base):
    @geomx.hookimpl
    def geomx_slicer(self, link):
        return Slicer()
""",
    "refusal": """
class Refuses(Half):
    def decode(self, parts, length):
        raise geomx.Refused("a scale that is not finite")

class Plugin(Base):
    @geomx.hookimpl
    def geomx_codec(self, link):
        return Refuses() if link.kind == "wan" and link.direction == "push" else None
""",
}
REFUSED = "accel bad: geomx_codec: Refuses.decode refused the bytes: a scale that is not finite"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sim", "live"])
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("policy", r"accel bad: geomx_sync_policy: Policy.push_scale\(\) must be a finite number"),
        ("slicer", "accel bad: geomx_slicer: Slicer.cut made a slice on channel 99"),
        ("refusal", REFUSED),
    ],
)
def test_both_modes_have_the_same_errors(
    source: str, words: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = accel("bad", "pass").replace("class Plugin(Base):\n    pass\n", LIVE[source])
    install(tmp_path / "site", "bad_stranger", text, monkeypatch)
    with pytest.raises(GeomxError, match=words) as caught:
        experiment = build(
            Registry.discover(), accel=[("bad", {})], network=SOLO, iterations=3, mode=mode
        )
        execute(experiment, tmp_path / "run")
    if source == "refusal":  # also names the peer that sent the bytes
        assert "east/server" in str(caught.value)


@pytest.mark.parametrize(
    ("noun", "names", "words"),
    [
        (
            geomx.SyncPolicy,
            {"afterstep": True},
            "SyncPolicy.afterstep; did you mean after_step",
        ),
        (geomx.SyncPolicy, {"after_steps": True}, "did you mean after_step of a SyncPolicy"),
        (geomx.SyncPolicy, {"local_optimiser": None}, "did you mean local_optimizer"),
        (geomx.SyncPolicy, {"togethr": False}, "did you mean together"),
        (geomx.SyncPolicy, {"workers": 3, "exchanged": 1, "_afterstep": 1, "coordinates": 1}, ""),
        (geomx.SyncPolicy, {"after_step": True, "after_steps": 3}, ""),
        (geomx.WorkerSync, {"after_stepp": True}, "did you mean after_step of a WorkerSync"),
        (geomx.WorkerSync, {"finished": True, "finish": 1, "reports": 1}, ""),
        (geomx.Placement, {"servers": 3}, ""),
        (geomx.PartySync, {"makesup": True}, "did you mean makes_up of a PartySync"),
        (geomx.PartySync, {"partyrounds": 1}, "did you mean party_rounds of a PartySync"),
        (geomx.PartySync, {"makes_up": True, "members": 1, "party_rounds": 1}, ""),
        (geomx.Coordinator, {"on_members": []}, "did you mean on_member of a Coordinator"),
        (geomx.Slicer, {"besteffort": True}, "did you mean best_effort of a Slicer"),
    ],
)
def test_misspelt_names_are_refused(noun: type, names: Any, words: str) -> None:
    answer = changed(noun, **names)
    if not words:
        return check_names("accel bad", noun, answer)
    with pytest.raises(PluginError, match=f"accel bad: geomx never uses .*{words}"):
        check_names("accel bad", noun, answer)


@pytest.mark.parametrize(
    ("noun", "name", "value"),
    [
        (geomx.SyncPolicy, "push_scale", "half"),
        (geomx.SyncPolicy, "global_optimizer", 7),
        (geomx.WorkerSync, "after_step", None),
        (geomx.Placement, "server", 0),
    ],
)
def test_a_value_in_place_of_a_method_is_refused(noun: type, name: str, value: object) -> None:
    answer = type("Mine", (noun,), {name: value})()
    with pytest.raises(PluginError, match=f"Mine.{name} must be a method, not {value!r}"):
        check_names("accel bad", noun, answer)
    setattr(answer, name, lambda *given: value)
    check_names("accel bad", noun, answer)


def test_misspelt_names_of_parts_are_refused_when_they_are_returned() -> None:
    for kind, base, name in (("codec", Half, "setle"), ("slicer", Cuts, "cutt")):
        wrong = changed(base, **{name: 1})
        if kind == "slicer":
            check_part("accel bad", kind, wrong)  # all required names are there
            continue
        with pytest.raises(PluginError, match="did you mean settle of a Codec"):
            check_part("accel bad", kind, wrong)
    with pytest.raises(PluginError, match="did you mean push_scale"):
        CheckedPolicy(changed(geomx.SyncPolicy, pushscale=1.0), "accel bad")
    side = policy(party_policy=changed(Side, initiall=1))()
    with pytest.raises(PluginError, match="did you mean initial of a PartySync"):
        CheckedPolicy(side, "accel bad").party_policy(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "words"), [(1, "True or False, not 1"), (np.True_, "not numpy's")]
)
def test_attributes_of_parts_are_truth_values_of_python(value: object, words: str) -> None:
    """The core reads them, and has no other word for what is wrong."""
    checked = CheckedPolicy(policy(party_policy=changed(Side, makes_up=value))(), "sync bad")
    with pytest.raises(PluginError, match=f"^sync bad: Side.makes_up must be .*{words}"):
        checked.party_policy(None, None)  # type: ignore[arg-type]
    checked = CheckedPolicy(policy(round_policy=changed(Closes, relative=value))(), "sync bad")
    with pytest.raises(PluginError, match=f"^sync bad: Closes.relative must be .*{words}"):
        checked.round_policy(None)  # type: ignore[arg-type]


def test_a_worker_that_is_told_its_steps_must_say_where_it_continues() -> None:
    """By default, the steps of earlier rounds are counted, which depend on replies."""
    cluster = build(Registry.discover(), network=SOLO, iterations=3).cluster
    told = CheckedPolicy(worker(coordinator=0)(), "sync bad").worker(cluster, cluster.workers[0], 3)
    assert told.resume(0) == 0
    with pytest.raises(PluginError, match=r"^sync bad: Told has .*; define Told\.resume\(\)$"):
        told.resume(1)
    alone = CheckedPolicy(worker()(), "sync bad").worker(cluster, cluster.workers[0], 3)
    assert [alone.resume(rounds) for rounds in (0, 1, 2, 3)] == [0, 1, 2, None]


def test_a_worker_that_continues_after_its_last_step_has_made_all_of_them() -> None:
    """A script loops from the number of those that were made."""
    cluster = build(Registry.discover(), network=SOLO, iterations=3).cluster
    policy = CheckedPolicy(worker()(), "sync bad")
    for rounds, last in ((0, False), (2, False), (3, True)):
        steps = Steps(policy, cluster, cluster.workers[0], 3)
        steps.resume(rounds)
        assert (steps.step + 1, steps.last) == (rounds, last)
