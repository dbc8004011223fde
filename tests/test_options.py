"""Options: bounds and units are declared with the field; combined plugins adopt options."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Interval, MinLen, MultipleOf, Unit

from geomx.cli.backends import GENERAL, OWN, backends
from geomx.config.compose import compose
from geomx.errors import ConfigError, PluginError
from geomx.experiment.words import check_words
from geomx.options.bounds import Count, Device, OneOf, unit_of
from geomx.options.costs import CodecCosts, Costs, DeviceCosts
from geomx.options.parsing import build_options
from geomx.options.schema import PlanOptions, Root, RuntimeOptions, SimOptions, TcpOptions
from geomx.plugin import native_options
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registry import Registry
from geomx.results.tables import costs_note
from geomx.runner import execute
from tests.laws import registry_with

pytestmark = pytest.mark.interpreter  # dataclasses and their annotations

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Bounded:
    share: Annotated[float, Interval(gt=0, le=1), Unit("share of rows")] = 0.5
    rounds: Annotated[int | None, Ge(0), Unit("rounds")] = None
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    way: Annotated[str, OneOf(("push", "pull"))] = "push"
    sizes: Annotated[list[Count], MinLen(1)] = field(default_factory=lambda: [1])
    device: Device = "cpu"
    block: Annotated[int, Ge(8), MultipleOf(8)] = 8
    quick: bool = True


def test_numbers_are_no_truth_values() -> None:
    with pytest.raises(ConfigError, match=r"^costs.on_device=-1: must be true or false$"):
        compose(["workload=tiny", "costs.on_device=-1"])


@pytest.mark.parametrize("value", ["-1", "5", "+2", "1_0"])
def test_only_0_and_1_mean_truth_values(value: str) -> None:
    made = {"accel": {"x": {"push": True}}}  # as Hydra makes of all numbers but 0
    with pytest.raises(ConfigError, match="must be true or false"):
        check_words([f"accel.x.push={value}"], made)
    check_words(["accel.x.push=1", "+accel.x.push=yes", "accel.x.push=00"], made)


def test_numbers_stay_numbers_where_they_are_wanted() -> None:
    check_words(["seed=5", "accel.x.k=-3", "+lists=7", "~numerics"], {"seed": 5, "numerics": True})


@pytest.mark.parametrize("key", ["network", "sync", "workload"])
def test_a_choice_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=.*: sets no option; must be a name$"):
        check_words([f"+{key}={{}}"], {})


@pytest.mark.needs("dgt", "mlflow")
@pytest.mark.parametrize("group", ["accel", "track"])
@pytest.mark.parametrize("value", ["5", "foo", "true"])
def test_a_value_in_place_of_a_plugins_options_is_refused(group: str, value: str) -> None:
    name = {"accel": "dgt", "track": "mlflow"}[group]
    words = [f"+{group}=[{name}]", f"{group}.{name}={value}", "workload=tiny"]
    with pytest.raises(ConfigError, match=f"^{group}.{name}={value}: holds several options; set"):
        compose(words)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"share": 0}, "o.share=0.0: must be more than 0 and at most 1 (share of rows)"),
        ({"share": 1.5}, "o.share=1.5: must be more than 0 and at most 1 (share of rows)"),
        ({"share": math.nan}, "o.share=nan: must be more than 0 and at most 1 (share of rows)"),
        ({"share": "x"}, "o.share=x: must be a number"),
        ({"rounds": -1}, "o.rounds=-1: must be 0 or more (rounds), or null"),
        ({"rounds": 0.5}, "o.rounds=0.5: must be a whole number or null"),
        ({"rounds": 10**309}, f"o.rounds={10**309}: must be a number below 1e308"),
        ({"port": 65536}, "o.port=65536: must be between 0 and 65535"),
        ({"way": "pul"}, "o.way=pul: did you mean pull? allowed: pull, push"),
        ({"sizes": []}, "o.sizes=[]: must list 1 or more"),
        ({"sizes": [1, 0]}, "o.sizes[1]=0: must be 1 or more"),
        ({"block": 12}, "o.block=12: must be a multiple of 8"),
        ({"device": "gpu"}, "o.device=gpu: must be cpu, cuda or cuda:N"),
    ],
)
def test_values_out_of_bounds_are_refused_in_one_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_options(Bounded, options, "o")
    assert str(caught.value) == sentence


def test_values_within_bounds_are_accepted() -> None:
    given = {"share": 1, "rounds": None, "port": 65535, "way": "pull", "device": "cuda:7"}
    made = build_options(Bounded, given, "o")
    assert (made.share, made.rounds, made.port) == (1.0, None, 65535)
    hints = typing.get_type_hints(Bounded, include_extras=True)
    assert [unit_of(hint) for hint in hints.values()][:3] == ["share of rows", "rounds", ""]


class Way(Enum):
    NEAREST = "to nearest"
    DOWN = "towards zero"


@dataclass(frozen=True)
class Chosen:
    way: Way = Way.DOWN
    other: Way | None = None
    folder: Path | None = None


def test_enumerations_are_typed_by_name_and_paths_as_text() -> None:
    made = build_options(Chosen, {"way": "NEAREST", "other": "DOWN", "folder": "a/b"}, "o")
    assert made == Chosen(Way.NEAREST, Way.DOWN, Path("a/b"))
    for name, value, sentence in (
        ("way", "UP", "o.way=UP: must be one of NEAREST, DOWN"),
        ("way", "to nearest", "o.way=to nearest: must be one of NEAREST, DOWN"),
        ("other", "UP", "o.other=UP: must be one of NEAREST, DOWN or null"),
        ("folder", 3, "o.folder=3: must be a path or null"),
    ):
        with pytest.raises(ConfigError) as caught:
            build_options(Chosen, {name: value}, "o")
        assert str(caught.value) == sentence


OURS = [Root, RuntimeOptions, TcpOptions, SimOptions, PlanOptions, Costs, DeviceCosts, CodecCosts]
PLUGINS = [plugin.config for plugin in Registry.discover().plugins()]


@pytest.mark.parametrize("config", [*OURS, *PLUGINS], ids=lambda config: config.__name__)
def test_defaults_are_within_their_bounds(config: type) -> None:
    made = build_options(config, {}, "")
    given = {each.name: getattr(made, each.name) for each in dataclasses.fields(config)}  # type: ignore[arg-type]
    assert build_options(config, given, "") == made


def test_native_options_have_the_names_of_the_fields() -> None:
    numbers = native_options(Bounded(), share=0.25, members=3)
    assert numbers == {"share": 0.25, "rounds": 0.0, "port": 0.0, "block": 8.0} | {
        "quick": 1.0,
        "members": 3.0,
    }
    assert all(type(number) is float for number in numbers.values())


@dataclass(frozen=True)
class Whole:
    size: Count = 4


class Composed:
    """A plugin that combines another."""

    def __init__(self, config: Any, part: Any) -> None:
        self.config, self.part = config, part


class Part:
    """A plugin that is combined by another."""

    def __init__(self, config: Any) -> None:
        self.config = config


@dataclass(frozen=True)
class Inner:
    depth: int = 1
    side: typing.Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Outer:
    """Options of which Hydra has no types."""

    way: typing.Literal["up", "down"] = "up"
    inner: Inner = Inner(depth=2)
    pair: tuple[int, str] = (1, "a")

    def __post_init__(self) -> None:
        if self.inner.depth > 9:
            raise ConfigError("inner.depth", self.inner.depth, "must be 9 or less")


def test_options_within_options_can_be_set_whatever_their_types(tmp_path: Path) -> None:
    registry = registered(("outer", Outer, Part))
    for module in ("geomx.plugins", "geomx.workloads"):
        registry.load(module)
    words = ["workload=tiny", "+accel=[outer]"]
    made, _ = compose([*words, "accel.outer.inner.side=right"], registry, tmp_path)
    inner = {"depth": 2, "side": "right"}
    assert made.selection.accel[0][1] == {"way": "up", "inner": inner, "pair": (1, "a")}
    for word, sentence in (
        ("inner.depth=10", "inner.depth=10: must be 9 or less"),
        ("inner.side=top", "inner.side=top: must be one of left, right"),
        ("inner=3", "inner=3: must be a table, {OPTION: VALUE}"),
        ("pair=[1]", "pair=[1]: must be a list of 2: a whole number, text"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose([*words, f"accel.outer.{word}"], registry)
        assert str(caught.value) == f"accel.outer.{sentence}"


def registered(*plugins: tuple[Any, ...]) -> Registry:
    registry = Registry()

    class Module:
        @hookimpl
        def geomx_register(self, register: Any) -> None:
            for plugin in plugins:
                register("accel", *plugin)

    registry.ask(Module())
    return registry


def test_a_combined_plugin_adopts_options() -> None:
    registry = registered(
        ("part", Bounded, Part), ("whole", Whole, Composed, {"part": ["port", "device", "block"]})
    )
    config = registry.find("accel", "whole").config
    names = [each.name for each in dataclasses.fields(config)]  # type: ignore[arg-type]
    assert names == ["size", "share", "rounds", "way", "sizes", "quick"]
    registry.load("geomx.plugins")
    selection = registry.select(None, [("whole", {"size": 2, "rounds": 7})])
    whole = selection._chosen[1].instance
    assert whole.config.size == 2
    assert whole.part.config == Bounded(rounds=7)
    with pytest.raises(ConfigError, match=r"accel\.whole\.share=2\.0: must be more than 0"):
        registry.select(None, [("whole", {"share": 2})])
    with pytest.raises(ConfigError, match=r"accel\.whole\.port=1: unknown option"):
        registry.select(None, [("whole", {"port": 1})])


@pytest.mark.parametrize(
    ("plugins", "sentence"),
    [
        (
            [("whole", Whole, Composed, {"part": []})],
            "is made of accel part, which is not installed",
        ),
        (
            [("part", Bounded, Part), ("whole", Whole, Composed, {"part": ["nothing"]})],
            "Bounded has no option nothing to leave out",
        ),
        (
            [("part", Whole, Part), ("whole", Whole, Composed, {"part": []})],
            "the option size is declared twice",
        ),
    ],
)
def test_invalid_combinations_are_refused(plugins: list[Any], sentence: str) -> None:
    with pytest.raises(PluginError, match=f"accel whole from .*: {sentence}"):
        registered(*plugins)


@pytest.mark.slow
def test_costs_of_plugins_apply_if_requested(tmp_path: Any) -> None:
    """Costs of the experiment for a plugin take precedence."""
    registry = Registry.discover()
    own = [p for p in registry.plugins("accel") if backends(p, registry)[0] == OWN]
    if not own:
        pytest.skip("no plugin supplies costs")
    name, words = own[0].name, ["workload=tiny", "numerics=false", "iterations=2"]

    def end_s(*more: str) -> float:
        made, _ = compose([*words, *more])
        run = execute(made, tmp_path / str(len(list(tmp_path.iterdir()))))
        return float(run.summary["seconds"])

    chosen = f"accel=[{name}]"
    general, brought = end_s(chosen), end_s(chosen, "costs.by_plugin=true")
    assert general == end_s(chosen, "costs.by_plugin=false")
    assert brought != general
    slow = f"+costs.codecs={{{name}: {{encode_message_s: 0.01}}}}"
    assert end_s(chosen, slow) == end_s(chosen, slow, "costs.by_plugin=true") > brought


class Identity:
    """A codec in Python that changes nothing."""

    whole: frozenset[str] = frozenset()
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return dict(spec)

    def encode(self, parts: Any) -> Any:
        return dict(parts)

    def decode(self, parts: Any, length: int) -> Any:
        return dict(parts)


class Stranger:
    """A plugin without costs for the simulator."""

    @hookimpl
    def geomx_codec(self, link: Any) -> Any:
        return Identity() if link.kind == "wan" else None


def test_the_parts_of_a_plugin_are_derived_from_its_hooks() -> None:
    registry = registry_with(stranger=("accel", Stranger()))
    for plugin in registry.plugins():
        simulated, live = backends(plugin, registry)
        if plugin.name == "stranger":
            assert (simulated, live) == (GENERAL, "codec: Python")
        elif plugin.kind in ("sync", "accel"):
            folder = ROOT / "plugins" / plugin.name
            native = "Native(" in (folder / "__init__.py").read_text(encoding="utf-8")
            assert ("C++" in live) == (native or bool(plugin.made_of)), plugin.name
            assert (simulated == OWN) == (folder / "sim.py").exists(), plugin.name
        else:
            assert (simulated, live) == ("", "")


def test_a_costs_file_that_tells_no_machine_is_not_said_to_be_measured_on_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("send_message_s: 1.0e-5\n")
    experiment, _ = compose(["workload=tiny", f"costs={file}"], directory=tmp_path / "run")
    told = experiment.header()["costs"]
    assert told["measured"] == {"machine": "", "cores": 0, "date": ""}
    assert costs_note({"mode": "sim", "costs": told}) == f"Endpoint costs come from {file}."
