"""From overrides to an experiment: selection and order of plugins, and composition of presets."""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

import geomx
import geomx.results.prediction
from geomx import runner
from geomx.config.compose import compose, main, prepare
from geomx.config.groups import network_choice
from geomx.errors import ConfigError, GeomxError, PluginError
from geomx.experiment.experiment import Experiment
from geomx.network.files import to_node_link
from geomx.network.warnings import ModelWarning
from geomx.options.schema import Costs, Root, RuntimeOptions, TcpOptions
from geomx.pages import both
from geomx.plugin.registry import Registry
from geomx.testing.worlds import NETWORK

pytestmark = pytest.mark.interpreter  # Hydra and argument parsing


@dataclass(frozen=True)
class Nested:
    depth: int = 1


@dataclass(frozen=True)
class Config:
    share: float = 0.1
    nested: Nested = Nested()


@dataclass(frozen=True)
class Picky:
    way: Literal["up", "down"] = "up"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


INSTALLED = {plugin.name for plugin in Registry.discover().plugins()}
BASIC = "hydra/launcher=basic"  # in this process, where tests can observe jobs


def needs(*names: str) -> None:
    """Skip a test of a plugin whose folder has been deleted."""
    for name in names:
        if name not in INSTALLED:
            pytest.skip(f"no plugin {name}")


def experiment(*words: str) -> Experiment:
    return compose(list(words))[0]


def chosen(*words: str) -> list[str]:
    return [name for name, _ in experiment(*words).selection.accel]


def test_the_default_experiment() -> None:
    plain = experiment()
    assert (plain.mode, plain.seed, plain.selection.accel) == ("sim", 0, ())
    assert plain.selection.sync[0] == "fsa"
    assert plain.cluster.name == "two_parties"
    assert (len(plain.cluster.parties), len(plain.cluster.workers)) == (2, 4)
    assert plain.workload.has_numerics
    assert plain.numerics
    assert plain.iterations == plain.workload.iterations


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_have_64_bits(seed: int) -> None:
    assert experiment(f"seed={2**64 - 1}").seed == 2**64 - 1
    with pytest.raises(ConfigError, match=f"^seed={seed}: must be between 0 and {2**64 - 1}$"):
        experiment(f"seed={seed}")


def test_every_node_has_a_port_for_its_metrics() -> None:
    last = 65536 - len(experiment().cluster.nodes)
    assert experiment(f"metrics.port={last}").metrics.port == last
    with pytest.raises(ConfigError, match=rf"^metrics\.port={last + 1}: must be at most {last}, "):
        experiment(f"metrics.port={last + 1}")


def test_a_key_that_the_network_lacks_needs_a_plus() -> None:
    remedy = r"=3: the network's file has only .* there; add another with a \+: '\+network\.jitter"
    with pytest.raises(ConfigError, match=remedy):
        experiment("network.jitter_ms=3")
    experiment("+network.jitter_ms=3")


@pytest.mark.slow
def test_sync_with_and_without_plus_mean_the_same() -> None:
    needs("hfa")
    one = experiment("+sync=hfa", "sync.k1=20")
    other = experiment("sync=hfa", "sync.k1=20")
    assert one.selection.sync == other.selection.sync
    assert one.selection.sync[1]["k1"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("order", [["dgt", "p3"], ["p3", "dgt"], ["fp16", "p3", "dgt"], []])
def test_accelerators_keep_the_order_of_the_command_line(order: list[str]) -> None:
    needs(*order)
    listed = f"[{','.join(order)}]"
    assert chosen(f"+accel={listed}") == order
    assert chosen(f"accel={listed}") == order


def test_each_accelerator_has_its_own_options() -> None:
    needs("dgt", "p3")
    selection = experiment(
        "+accel=[dgt,p3]", "accel.dgt.k=0.6", "accel.p3.slice_elements=9"
    ).selection
    (dgt, p3) = (dict(options) for _, options in selection.accel)
    assert (dgt["k"], p3["slice_elements"]) == (0.6, 9)


@pytest.mark.slow
def test_options_of_an_experiment() -> None:
    made = experiment(
        "mode=live", "seed=3", "iterations=7", "evaluate_every=2", "workload=resnet50",
        "runtime.failure_timeout_s=2", "tcp.congestion=cubic", "costs.send_message_s=1e-3",
    )  # fmt: skip
    assert (made.mode, made.seed, made.iterations, made.evaluate_every) == ("live", 3, 7, 2)
    assert not made.numerics
    assert made.runtime == RuntimeOptions(failure_timeout_s=2.0)
    assert made.tcp == TcpOptions(congestion="cubic", queueing="priority")
    assert made.costs == Costs(send_message_s=1e-3)
    assert not experiment("numerics=false").numerics


@pytest.mark.slow
def test_the_default_queueing_depends_on_the_emulation() -> None:
    for words, expected in (
        ((), "priority"),
        (("emulate=netns",), "fifo"),
        (("emulate=none",), "priority"),
        (("tcp.queueing=fifo",), "fifo"),
        (("emulate=netns", "tcp.queueing=priority"), "priority"),
    ):
        assert experiment(*words).tcp.queueing == expected
    with pytest.raises(ConfigError, match=r"tcp\.queueing=red"):
        experiment("tcp.queueing=red")


@pytest.mark.slow
def test_acknowledgements_depend_on_the_emulation() -> None:
    """The shaper emulates a network that none cross: one of 52 bytes per two full segments."""
    for words, expected in (
        ((), None),
        (("emulate=netns",), 52 / 3000),
        (("emulate=none", "tcp.congestion=cubic"), 52 / 3000),
        (("emulate=netns", "tcp.ack_share=0"), 0.0),
        (("tcp.ack_share=0.01",), 0.01),
    ):
        assert experiment(*words).tcp.ack_share == expected
    with pytest.raises(ConfigError, match=r"tcp\.ack_share=2"):
        experiment("tcp.ack_share=2")


def test_the_header_contains_the_experiment() -> None:
    needs("hfa", "p3", "dgt")
    header = experiment("+sync=hfa", "+accel=[p3,dgt]", "seed=5").header()
    assert list(header)[:9] == [
        "schema", "geomx", "mode", "seed", "sync", "accel", "network", "workload", "iterations",
    ]  # fmt: skip
    assert header["schema"] == 1
    assert header["sync"]["name"] == "hfa"
    assert [accel["name"] for accel in header["accel"]] == ["p3", "dgt"]
    assert header["network"] == {
        "name": "two_parties", "parties": 2, "workers": 4, "global_servers": 1,
    }  # fmt: skip
    assert header["workload"]["bytes"] == 4 * header["workload"]["elements"]
    assert header["words"] == ["+sync=hfa", "+accel=[p3,dgt]", "seed=5"]


@pytest.mark.parametrize("form", ["wan.yaml", "some/wan.yaml", "wan"])
def test_network_files(form: str, tmp_path: Path) -> None:
    content = yaml.safe_load((files("geomx.conf") / "network/two_parties.yaml").read_text())
    del content["name"]
    content["parties"]["wuhan"] = {"workers": 1, "uplink_mbps": 5, "downlink_mbps": 5}
    path = tmp_path / form
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    if path.suffix:
        cluster = experiment(f"network={form}", "network.delay_ms=50").cluster
        assert cluster.name == "wan"
        assert [party.name for party in cluster.parties] == ["beijing", "chengdu", "wuhan"]
        servers = cluster.parties[0].server, cluster.parties[1].server
        assert cluster.path(*servers).delay_s == pytest.approx(50.1e-3)
    else:
        with pytest.raises(ConfigError, match="unknown suffix"):
            experiment(f"network={form}")


@pytest.mark.parametrize("name", ["", "name: East\n"])
def test_errors_of_a_network_file_name_what_was_typed(name: str, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/wan.yaml").write_text(f"{name}central: {{}}\nparties: {{a: {{}}}}\n")
    with pytest.raises(ConfigError, match=r"^network=some/wan\.yaml: central"):
        experiment("network=some/wan.yaml")


@pytest.mark.slow
def test_a_large_network_file_is_not_copied_into_the_configuration(tmp_path: Path) -> None:
    """The command line may still override every key in it."""
    party = {"workers": 1, "uplink_mbps": 5, "downlink_mbps": 5}
    content = {
        "central": {"uplink_mbps": 50, "downlink_mbps": 50},
        "parties": {f"p{index}": party for index in range(200)},
        "delay_ms": 10,
        "loss": 0.01,
    }
    path = tmp_path / "many.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    choice = network_choice(str(path), Registry.discover())
    node = ConfigStore.instance().repo["network"][f"{choice}.yaml"].node
    assert len(OmegaConf.to_yaml(node)) < len(path.read_text()) / 5
    cluster = experiment(f"network={path}", "network.delay_ms=50", "network.loss=null").cluster
    assert len(cluster.parties) == 200
    servers = cluster.parties[0].server, cluster.parties[1].server
    assert cluster.path(*servers).delay_s == pytest.approx(50.1e-3)
    assert cluster.path(*servers).loss == 0
    for word in ("network.parties.p3.workers=4", "++network.parties.p3.workers=4"):
        assert len(experiment(f"network={path}", word).cluster.parties[3].workers) == 4


def test_network_json_of_a_run_is_a_network_file(tmp_path: Path) -> None:
    first = experiment("network=five_regions").cluster
    (tmp_path / "network.json").write_text(json.dumps(to_node_link(first.graph)))
    second = experiment("network=network.json").cluster
    assert (second.name, second.nodes) == (first.name, first.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["network", "experiment"])
def test_every_preset_composes(group: str) -> None:
    for entry in (files("geomx.conf") / group).iterdir():
        name, _, suffix = entry.name.rpartition(".")
        if suffix == "yaml":
            experiment(f"{group}={name}")


@pytest.mark.slow
def test_every_plugin_composes() -> None:
    for plugin in Registry.discover().plugins():
        if plugin.kind == "sync":
            assert experiment(f"sync={plugin.name}").selection.sync[0] == plugin.name
        elif plugin.kind == "accel":
            assert chosen(f"accel=[{plugin.name}]") == [plugin.name]


def test_every_option_has_a_comment() -> None:
    for config in (Root, RuntimeOptions, TcpOptions):
        source = inspect.getsource(config).split("\n")
        for field in fields(config):
            (line,) = (i for i, text in enumerate(source) if text.startswith(f"    {field.name}: "))
            assert source[line - 1].lstrip().startswith("#"), field.name


@pytest.mark.slow
def test_third_party_plugins_can_be_selected() -> None:
    class Stranger:
        """Does nothing."""

        def __init__(self, config: Any) -> None:
            self.config = config

    registry = Registry.discover()

    @geomx.hookimpl
    def geomx_register(register: Any) -> None:
        register("accel", "stranger", Config, Stranger)
        register("accel", "picky", Picky, Stranger)

    registry.ask(type("module", (), {"geomx_register": staticmethod(geomx_register)}))
    words = ["+accel=[stranger]", "accel.stranger.share=0.5", "accel.stranger.nested.depth=4"]
    made, _ = compose(words, registry)
    assert made.selection.accel == (("stranger", {"share": 0.5, "nested": {"depth": 4}}),)
    made, _ = compose(["+accel=[picky]", "accel.picky.way=down"], registry)
    assert made.selection.accel == (("picky", {"way": "down"}),)
    with pytest.raises(ConfigError, match=r"accel\.picky\.way=left: must be one of up, down"):
        compose(["+accel=[picky]", "accel.picky.way=left"], registry)
    with pytest.raises(ConfigError, match="no such accel"):
        experiment("+accel=[stranger]")


@pytest.mark.slow
def test_two_runs_in_one_second_have_different_directories() -> None:
    directories = [compose([])[1] for _ in range(3)]
    assert len(set(directories)) == 3
    for directory in directories:
        assert directory.is_dir()
        assert directory.parent.parent == Path("outputs").absolute()
    assert compose(["hydra.run.dir=here/it/is"])[1] == Path("here/it/is").absolute()


@pytest.mark.parametrize("place", ["here", "here/run"])
def test_a_file_in_the_place_of_a_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    words = ["workload=tiny", f"hydra.run.dir={tmp_path / place}"]
    for run in (compose, lambda words: main(words, lambda *_: pytest.fail("a run began"))):
        with pytest.raises(GeomxError, match=rf"cannot be made: {tmp_path}/here is a file; work"):
            run(words)
    sweep = ["-m", "workload=tiny", "seed=1,2", f"hydra.sweep.dir={tmp_path / place}"]
    with pytest.raises(GeomxError, match=rf"{tmp_path}/here is a file; .*hydra\.sweep\.dir=FOLDER"):
        main(sweep, lambda *_: pytest.fail("a run began"))


@pytest.mark.parametrize("mode", ["sim", "live"])
@pytest.mark.parametrize("wan", ["nix", "nix.py"])
def test_a_model_of_the_network_that_there_is_not_is_refused_at_once(wan: str, mode: str) -> None:
    with pytest.raises(ConfigError, match=f"^sim.wan={wan}: "):
        main([f"sim.wan={wan}", f"mode={mode}"], lambda *_: pytest.fail("a run began"))
    assert not any(Path.cwd().iterdir())


def test_a_sweep_whose_folder_cannot_be_made_is_refused(recwarn: Any) -> None:
    Path("multirun").touch()
    with pytest.raises(GeomxError, match=r"multirun is a file; .*hydra\.sweep\.dir=FOLDER"):
        main(["-m", "workload=tiny", "seed=1,2"], lambda *_: pytest.fail("a run began"))
    assert not [warning for warning in recwarn if "Callback" in str(warning.message)]


@pytest.mark.parametrize(
    "words",
    [
        *(["hydra.run.dir="], ['hydra.run.dir=""']),
        *(["-m", word, "seed=1,2"] for word in ("hydra.sweep.dir=", "hydra.sweep.dir=''")),
    ],
)
def test_a_folder_without_a_name_is_refused(words: list[str]) -> None:
    before = set(Path.cwd().iterdir())
    with pytest.raises(
        ConfigError, match=r"^hydra\.\w+\.dir=: must be a folder; the present one is"
    ):
        main(["workload=tiny", *words], lambda *_: pytest.fail("a run began"))
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.slow
def test_a_sweep_runs_every_combination_in_its_own_directory() -> None:
    needs("hfa", "dgt", "p3", "fp16")
    seen = []

    def job(made: Experiment, directory: Path) -> None:
        accel = [name for name, _ in made.selection.accel]
        seen.append((made.selection.sync[0], accel, directory))

    base = main(["-m", "+sync=fsa,hfa", "+accel=[],[dgt],[p3,fp16]", BASIC], job)
    assert [(sync, accel) for sync, accel, _ in seen] == [
        (sync, accel) for sync in ("fsa", "hfa") for accel in ([], ["dgt"], ["p3", "fp16"])
    ]
    assert base is not None
    assert [directory for *_, directory in seen] == [base / str(job) for job in range(6)]
    assert base.parent.parent == Path("multirun").absolute()


@pytest.mark.slow
def test_the_sweep_flag_may_stand_anywhere() -> None:
    seeds = []
    words = ["seed=1,2", "-m", "iterations=1", BASIC]
    main(words, lambda made, directory: seeds.append(made.seed))
    assert seeds == [1, 2]


@pytest.mark.slow
def test_overrides_of_a_run_are_stored_as_typed() -> None:
    needs("hfa", "dgt", "p3")
    words = ["+sync=hfa", "+accel=[dgt,p3]"]
    made = []
    assert main(words, lambda one, directory: made.append(one)) is None
    assert made[0].overrides == words


@pytest.mark.slow
def test_composition_leaves_no_global_state() -> None:
    before = (list(sys.argv), dict(os.environ), sys.stderr, os.getcwd())
    main(["seed=1"], lambda made, directory: None)
    with pytest.raises(ConfigError):
        main(["seed=x"], lambda made, directory: None)
    assert (list(sys.argv), dict(os.environ), sys.stderr, os.getcwd()) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("sync.k1=3 +sync=diloco", "sync.k1=3: is an option of sync=hfa, which is not chosen; "),
        ("sync.k=3 +sync=hfa", "sync.k=3: unknown key; did you mean k2?"),
        (
            "scenario.x=3",
            "scenario.x=3: scenario has no keys of its own: it is a list, or null; set",
        ),
        ("-m experiment=glob(paper*)", r"experiment=glob\(paper\*\): list the names"),
        ("hydra.sweeper.params.x=3", "hydra.sweeper.params.x=3: can be set by files only; "),
        ("hydra.sweeper.params={x:3}", "hydra.sweeper.params=.*: can be set by files only; "),
        ("--config-dir none seed=1", "flags=.*: there is no folder none"),
        ("--config-name none seed=1", "--config-name=none: there is none; "),
        ("--config-path none seed=1", "--config-path=.*none: there is none; "),
        ("experiment=a/b.yaml", "experiment=a/b.yaml: no such experiment; .*--config-dir"),
    ],
)
def test_what_is_wrong_is_named_by_its_own_key(words: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        main(words.split(), lambda made, directory: None)


@pytest.mark.parametrize("word", ["network", "sync", "accel", "experiment", "costs", "scenario"])
def test_names_that_no_file_can_have_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=f"^{word}=x*.py: "):
        main([f"{word}={'x' * 300}.py"], lambda made, directory: None)
    if word == "network":
        with pytest.raises(ConfigError, match=r"^network=x*\.gml: cannot be read: File n"):
            main([f"network={'x' * 300}.gml"], lambda made, directory: None)


@pytest.mark.slow
def test_long_values_of_a_network_are_no_names_of_files(tmp_path: Path) -> None:
    delays: list[Any] = []
    words = ["hydra.sweep.dir=" + str(tmp_path / "sweep"), "hydra/launcher=basic", "workload=tiny"]

    def job(made: Any, directory: Path) -> None:
        delays.append(made.cluster.name)

    main(["-m", *words, f"network={','.join(22 * ['two_parties'])}"], job)
    assert delays == 22 * ["two_parties"]
    file = tmp_path / f"{'n' * 245}.yaml"
    file.write_text(yaml.safe_dump({**NETWORK, "name": "long"}))
    made, _ = compose([f"network={file}", "workload=tiny"], directory=tmp_path / "run")
    assert made.cluster.name == "long"


def test_a_flag_may_stand_behind_the_overrides(capfd: pytest.CaptureFixture[str]) -> None:
    main(["workload=tiny", "--info"], lambda made, directory: None)
    assert "workload/tiny" in capfd.readouterr().out


def test_files_are_not_listed_as_names(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("parties: {}")
    network_choice(str(tmp_path / "mine.yaml"), Registry.discover())
    with pytest.raises(ConfigError, match="network=nope: no such network") as caught:
        compose(["network=nope"])
    assert "mine" not in str(caught.value)


@pytest.mark.slow
def test_a_sweep_may_list_network_files(tmp_path: Path) -> None:
    text = (files("geomx.conf") / "network/two_parties.yaml").read_text()
    (tmp_path / "a").mkdir()
    for path in ("wan.yaml", "a/wan.yaml"):
        (tmp_path / path).write_text(text.replace("name: two_parties", ""))
    words = prepare(["network=wan.yaml,five_regions,a/wan.yaml"], Registry.discover())
    choices = words[0].removeprefix("network=").split(",")
    assert choices[1] == "five_regions"
    assert len(set(choices)) == 3


@pytest.mark.slow
def test_overrides_of_a_sweeps_runs_name_the_files_that_were_typed(tmp_path: Path) -> None:
    """So that each run can be repeated."""
    shipped = (files("geomx.conf") / "network/two_parties.yaml").read_text()
    (tmp_path / "a").mkdir()
    for path in ("my wan.yaml", "a/my wan.yaml"):
        (tmp_path / path).write_text(shipped.replace("name: two_parties", ""))
    (tmp_path / "costs.yaml").write_text("cores: 2\n")
    paths = ["my wan.yaml", "a/my wan.yaml", "five_regions"]
    made: list[Experiment] = []
    words = [f"network={','.join(paths)}", "+costs=costs.yaml", "workload=tiny", "seed=1"]
    main(["-m", BASIC, *words], lambda one, directory: made.append(one))
    assert [one.overrides for one in made] == [[f"network={path}", *words[1:]] for path in paths]
    again, _ = compose(made[1].overrides)
    assert (again.cluster.name, again.costs.cores) == ("my wan", 2)


def test_mode_both_runs_both_and_compares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = []

    def run(made: Experiment, directory: Path) -> str:
        ran.append((made.mode, directory))
        return made.mode

    for mode in ("sim", "live"):
        monkeypatch.setitem(runner.RUNNERS, mode, run)
    compared = []
    monkeypatch.setattr(runner, "compare", lambda *pair: {})
    monkeypatch.setattr(both, "leave", lambda *given: compared.append(given))
    made = experiment("mode=both")
    assert runner.execute(made, tmp_path) == "live"
    assert ran == [("sim", tmp_path / "sim"), ("live", tmp_path / "live")]
    assert compared == [("sim", "live", {}, tmp_path)]


def test_run_refuses_flags() -> None:
    with pytest.raises(
        ConfigError, match="override=-m: is a flag of the command line; leave it out"
    ):
        geomx.run(["-m", "seed=1,2"])


def test_a_sync_plugin_without_a_policy_is_an_error() -> None:
    @dataclass
    class Config:
        """A plugin's options: none."""

    class Silent:
        """A sync plugin that returns no policy."""

        def __init__(self, config: Config) -> None:
            pass

    registry = Registry.discover()
    module = type("module", (), {})
    module.geomx_register = staticmethod(  # type: ignore[attr-defined]
        geomx.hookimpl(lambda register: register("sync", "silent", Config, Silent))
    )
    registry.ask(module)
    with pytest.raises(PluginError, match="sync silent: it returns no sync policy"):
        compose(["sync=silent"], registry)


@pytest.mark.parametrize(
    ("word", "told"), [("sync=nope", True), ("experiment=nope", False), ("hydra/output=x", False)]
)
def test_plugins_that_failed_to_load_are_named_where_they_may_be_missing(
    word: str, told: bool
) -> None:
    registry = Registry.discover()
    registry.load("no_module_of_this_name")
    with pytest.raises(ConfigError, match="no such") as caught:
        compose([word], registry)
    assert ("no_module_of_this_name" in str(caught.value)) is told


@pytest.mark.slow
def test_different_round_trips_under_loss_based_control_cause_a_warning() -> None:
    with pytest.warns(ModelWarning, match="share .* under cubic"):
        experiment("network=five_regions", "tcp.congestion=cubic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        experiment("network=five_regions")
        experiment("tcp.congestion=cubic")
