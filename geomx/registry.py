"""Which plugins exist, and which of them one experiment uses.

`Registry` knows what exists: it asks hook 1 of every installed module, loading each in isolation,
so that a broken plugin is shown as broken and hurts nobody else. `Registry.select` makes a
`Selection`: instances built from validated options, each held by a plugin manager of its own. There
is no global state: experiments, tests and sweeps in one process do not see each other.

Four things pluggy alone leaves open are settled here. Order: plugins are asked as the command line
lists them. Exclusivity: two deciders are refused by name instead of one winning silently. Typos:
a misspelt hook is an error that names the right one. Blame: whatever a plugin raises or returns
wrongly comes back as a `PluginError` naming plugin and hook.

Live node processes use this module too (they receive names and options from the scheduler), so it
imports neither Hydra nor OmegaConf.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from geomx import hookspecs
from geomx.api import check_version
from geomx.asking import (
    ANSWERS,
    admit,
    call,
    check_answer,
    check_instance,
    has_hook,
    one_line,
)
from geomx.contracts import (
    CheckedPartitioner,
    CheckedPlacement,
    CheckedPolicy,
    check_costs,
    check_overlay,
)
from geomx.errors import ConfigError, GeomxError, PluginError
from geomx.groups import groups_of
from geomx.options import build_options, near, prefixed
from geomx.patience import hook_limited
from geomx.plugin import ByTurns

if TYPE_CHECKING:
    from geomx.cluster import Cluster, Link, NodeSpec
    from geomx.experiment import Experiment
    from geomx.plugin import (
        BySize,
        Codec,
        Group,
        Native,
        Optimizer,
        Overlay,
        Partitioner,
        Placement,
        Site,
        Slicer,
        SyncPolicy,
    )
    from geomx.workload import TensorSpec, Workload

ENTRY_POINTS = "geomx"
KINDS = ("sync", "accel", "workload", "network")
DEFAULT_SYNC = "fsa"

Found = TypeVar("Found")
Options = dict[str, Any]
Choice = tuple[str, Options]


@dataclass(frozen=True)
class _NoOptions:
    """The default policy has none."""


class _Default:
    """The fully synchronous base policy, in case no installed plugin bears the default's name."""

    @hookspecs.hookimpl
    def geomx_register(self, register: Register) -> None:
        """Announce the base policy under the default's name."""
        register("sync", DEFAULT_SYNC, _NoOptions, _DefaultPolicy)


class _DefaultPolicy:
    """Fully synchronous (the built-in default)."""

    def __init__(self, config: _NoOptions) -> None:
        self.config = config

    @hookspecs.hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """The base class of all policies."""
        from geomx.plugin import SyncPolicy

        return SyncPolicy()


@dataclass(frozen=True)
class Plugin:
    """One registered plugin.

    Attributes:
        kind: One of `KINDS`.
        name: As typed by users.
        config: Dataclass of its options.
        factory: Builds the plugin, workload or network from an instance of `config`.
        origin: The module, and the distribution where known.
    """

    kind: str
    name: str
    config: type
    factory: Callable[[Any], Any]
    origin: str

    @property
    def summary(self) -> str:
        """First line of the factory's own documentation, else of its module's."""
        module = inspect.getmodule(self.factory)
        own = getattr(self.factory, "__doc__", None)
        text = own or getattr(module, "__doc__", None) or ""
        return text.strip().split("\n", 1)[0]

    @property
    def lossless(self) -> bool:
        """Whether training with it gives the same numbers, up to the order of additions.

        A factory that promises this says so by ``lossless = True``.
        """
        return bool(getattr(self.factory, "lossless", False))

    @property
    def mxnet(self) -> Mapping[str, str]:
        """How scripts of MXNet and GeoMX ask for it in ``set_gradient_compression``.

        ``type`` is its name there; other words mean options of `config`. Empty: they have no name
        for it. A factory that has one says so by ``mxnet = {"type": ..., "word": "option"}``.
        """
        return dict(getattr(self.factory, "mxnet", {}))

    @property
    def backends(self) -> tuple[str, ...]:
        """Modes it works in; a factory that supports one only says so by ``backends = (...)``."""
        return tuple(getattr(self.factory, "backends", ("sim", "live")))


@dataclass(frozen=True)
class Broken:
    """A module that was found but could not be used.

    Attributes:
        origin: The module, and the distribution where known.
        error: What went wrong, in one line.
        names: Under which its plugins are probably asked for: of its entry point, and its own.
    """

    origin: str
    error: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.origin} could not be loaded: {self.error}"


class Register:
    """What `geomx_register` is given: call it to announce a plugin."""

    def __init__(self, registry: Registry, module: str, distribution: str | None) -> None:
        self._registry = registry
        self._module = module
        self._distribution = distribution

    def __call__(self, kind: str, name: str, config: type, factory: Callable[[Any], Any]) -> None:
        """Announce one plugin.

        Raises:
            PluginError: Wrong kind, name or config, or the name is taken.
        """
        module = getattr(factory, "__module__", None) or self._module
        origin = f"{module} ({self._distribution})" if self._distribution else module
        self._registry.add(Plugin(kind, name, config, factory, origin))

    def package(self, name: str) -> None:
        """Load every sub-package and module of package `name`, each in isolation.

        Those without a `geomx_register` are taken for helpers and left alone.
        """
        package = importlib.import_module(name)
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            if not info.name.startswith("_"):
                self._registry.load(f"{name}.{info.name}", self._distribution)


class Registry:
    """Everything that is installed. See the module's documentation."""

    def __init__(self) -> None:
        self.broken: list[Broken] = []
        self._plugins: dict[tuple[str, str], Plugin] = {}
        self._clashes: dict[tuple[str, str], list[str]] = {}

    @classmethod
    def discover(cls) -> Registry:
        """Load every entry point of the group ``geomx``."""
        registry = cls()
        points = importlib.metadata.entry_points(group=ENTRY_POINTS)
        for point in sorted(set(points), key=lambda point: (point.value, point.name)):
            distribution = None
            if point.dist is not None:
                distribution = f"{point.dist.name} {point.dist.version}"
            registry.load(point.value, distribution, point.name)
        if ("sync", DEFAULT_SYNC) not in registry._plugins:
            registry.ask(_Default())
        return registry

    def load(self, module: str, distribution: str | None = None, name: str = "") -> None:
        """Import `module` and ask it hook 1; a failure is kept in `broken`, not raised.

        Args:
            module: By its full name.
            distribution: Name and version of what installed it, where known.
            name: Of its entry point, by which a user may ask for it.
        """
        origin = f"{module} ({distribution})" if distribution else module
        names = frozenset(filter(None, (name, module.rpartition(".")[2])))
        try:
            with hook_limited(f"{origin}: its import"):
                loaded = importlib.import_module(module)
            self.ask(loaded, distribution)
        except Exception as error:
            self.broken.append(Broken(origin, one_line(error), names))
        except SystemExit as error:
            self.broken.append(Broken(origin, f"it ends the process ({error})", names))

    def ask(self, module: Any, distribution: str | None = None) -> None:
        """Ask hook 1 of a module (or of any object with that hook).

        Raises:
            PluginError: It misspells the hook, announces something impossible, or was written for
                another version of the interface.
        """
        name = getattr(module, "__name__", type(module).__name__)
        check_version(name, getattr(module, "geomx_api", None))
        register = Register(self, name, distribution)
        call(admit(module, name), name, "geomx_register", register=register)

    def add(self, plugin: Plugin) -> None:
        """Add one plugin.

        Raises:
            PluginError: Wrong kind, name or config, or the name is taken (and from now on refused
                when selected, since guessing which one is meant would be worse).
        """
        where = f"{plugin.kind} {plugin.name} from {plugin.origin}"
        if plugin.kind not in KINDS:
            raise PluginError(f"{where}: the kind must be one of {', '.join(KINDS)}")
        if not plugin.name.isidentifier():
            raise PluginError(f"{where}: the name must be a Python identifier")
        if not (isinstance(plugin.config, type) and dataclasses.is_dataclass(plugin.config)):
            raise PluginError(f"{where}: its config must be a dataclass")
        try:
            typing.get_type_hints(plugin.config)
        except Exception as error:
            raise PluginError(f"{where}: its config's types: {one_line(error)}") from error
        if not callable(plugin.factory):
            raise PluginError(f"{where}: its factory must be callable")
        key = plugin.kind, plugin.name
        taken = self._plugins.setdefault(key, plugin)
        if taken is not plugin:
            origins = self._clashes.setdefault(key, [taken.origin])
            origins.append(plugin.origin)
            raise PluginError(
                f"{plugin.kind} {plugin.name} is announced twice: by {' and by '.join(origins)}"
            )

    def plugins(self, kind: str | None = None) -> list[Plugin]:
        """All plugins (of one kind), by kind and name."""
        found = [plugin for plugin in self._plugins.values() if kind in (None, plugin.kind)]
        return sorted(found, key=lambda plugin: (KINDS.index(plugin.kind), plugin.name))

    def find(self, kind: str, name: str) -> Plugin:
        """The plugin of that kind and name.

        Raises:
            ConfigError: There is none, or there are two; says which there are.
        """
        plugin = self._plugins.get((kind, name))
        if plugin is None:
            known = [plugin.name for plugin in self.plugins(kind)]
            raise ConfigError(kind, name, self.missing(name, f"{kind} plugin", known))
        if (kind, name) in self._clashes:
            origins = " and by ".join(self._clashes[kind, name])
            raise ConfigError(kind, name, f"announced by {origins}; uninstall one of them")
        return plugin

    def missing(self, name: str, what: str, known: Iterable[str], also: str = "") -> str:
        """Why there is no plugin `name`, and what to choose instead, for a `ConfigError`.

        Args:
            name: What was asked for.
            what: The kind of thing, as in "no such accel plugin".
            known: What there is of that kind.
            also: What else would do, to be said after `known`.
        """
        asked = [str(broken) for broken in self.broken if name in broken.names]
        if asked:
            return "; ".join(asked)
        remedy = f"no such {what}; {near(name, known)}{also}"
        others = "; ".join(f"{broken.origin}: {broken.error}" for broken in self.broken)
        return f"{remedy} (failed to load: {others})" if others else remedy

    def select(self, sync: Choice | None, accel: Sequence[Choice] = ()) -> Selection:
        """Build the plugins that one experiment uses.

        Args:
            sync: Name and options; None for the default.
            accel: Names and options, in order.

        Raises:
            ConfigError: An unknown name, an unknown option, a value out of range, a name twice.
            PluginError: A plugin broke a rule.
        """
        names = [name for name, _ in accel]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError("accel", f"[{','.join(names)}]", f"{name} is listed twice")
        chosen = [self._build("sync", "sync", sync or (DEFAULT_SYNC, {}))]
        chosen += [self._build("accel", f"accel.{choice[0]}", choice) for choice in accel]
        return Selection(chosen)

    def workload(self, name: str, options: Options) -> Workload:
        """Build a workload from its options.

        Raises:
            ConfigError: An unknown name or option, a value out of range, data that is absent.
            PluginError: Its factory failed or returned something else.
        """
        from geomx.workload import Workload

        built = self._build("workload", "workload", (name, options)).instance
        if not isinstance(built, Workload):
            raise PluginError(
                f"workload {name}: its factory returned {type(built).__name__}, not a Workload"
            )
        return built

    def network(self, name: str, options: Options) -> Any:
        """What a network plugin makes of its options: the content of a network file, or a graph.

        Raises:
            ConfigError: An unknown name or option, a value out of range, a file that is unreadable.
            PluginError: It failed, or returned something else.
        """
        import networkx as nx

        built = self._build("network", "network", (name, options)).instance
        if not isinstance(built, Mapping | nx.Graph):
            raise PluginError(
                f"network {name}: its factory returned {type(built).__name__}, "
                "not the content of a network file or a networkx graph"
            )
        return built

    def _build(self, kind: str, prefix: str, choice: Choice) -> Built:
        name, options = choice
        plugin = self.find(kind, name)
        config: Any = build_options(plugin.config, options, prefix)
        # A workload may load its data meanwhile, however long that takes.
        limited = (
            nullcontext()
            if kind == "workload"
            else hook_limited(f"{kind} {name}: could not be built:")
        )
        try:
            with limited:
                instance = plugin.factory(config)
        except ConfigError as error:
            raise prefixed(error, plugin.config, prefix) from error
        except GeomxError:
            raise
        except Exception as error:
            raise PluginError(f"{kind} {name}: could not be built: {one_line(error)}") from error
        return Built(plugin, dataclasses.asdict(config), instance)


@dataclass(frozen=True)
class Built:
    """A selected plugin: what it is, all its options, and the instance."""

    plugin: Plugin
    options: Options
    instance: Any

    @property
    def label(self) -> str:
        """How it is called in errors: ``accel NAME``."""
        return f"{self.plugin.kind} {self.plugin.name}"

    @property
    def choice(self) -> Choice:
        """Name and options, as `Registry.select` takes them."""
        return self.plugin.name, dict(self.options)


class Selection:
    """The plugins of one experiment, in order: sync first, then accelerators as listed.

    Attributes:
        sync: Name and all options of the sync plugin.
        accel: Names and all options of the accelerators, in order.
        changed_cluster: Whose answer to hook 11 was another cluster, as errors would name it.
    """

    def __init__(self, chosen: Sequence[Built]) -> None:
        self._chosen = tuple(chosen)
        self.sync: Choice = chosen[0].choice
        self.accel: tuple[Choice, ...] = tuple(built.choice for built in chosen[1:])
        for built in chosen:
            check_instance(built.instance, built.label)
        self._managers = [admit(built.instance, built.label) for built in chosen]
        self.changed_cluster: set[str] = set()
        self._overlay_labels: dict[int, str] = {}  # by root
        self._kept: tuple[Cluster | None, dict[Any, Any]] = None, {}
        self._askable: dict[str, list[tuple[Built, Any]]] = {}  # by hook

    def validate(self, experiment: Experiment) -> None:
        """Let every plugin refuse the experiment (hook 2)."""
        self._ask("geomx_validate", experiment=experiment)

    def sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """The one sync policy (hook 3)."""
        return self._sync(cluster)[1]

    def sync_label(self, cluster: Cluster) -> str:
        """Whose the sync policy is, for errors."""
        return f"{self._sync(cluster)[0].label}: geomx_sync_policy"

    def _sync(self, cluster: Cluster) -> tuple[Built, SyncPolicy]:
        answers = self._ask("geomx_sync_policy", cluster=cluster)
        if len(answers) > 1 and self.sync[0] == DEFAULT_SYNC:
            answers = answers[1:]
        answer = self._only(answers, "the sync policy")
        if answer is None:
            raise PluginError(f"sync {self.sync[0]}: it gives no sync policy")
        built = answers[0][0]
        return built, CheckedPolicy(answer, f"{built.label}: geomx_sync_policy")

    def minds(self, cluster: Cluster) -> list[tuple[str, Site]]:
        """Coordinators by number, and whose they are: the policy's, then overlays', each once."""
        built, policy = self._sync(cluster)
        label = f"{built.label}: geomx_sync_policy"
        found = [(label, site) for site in policy.coordinators(cluster)]
        for group, overlay in self.overlays(cluster):
            if all(site != overlay.site for _, site in found):
                found.append((self._overlay_labels[group.root.id], overlay.site))
        return found

    def mind(self, cluster: Cluster, number: int) -> str:
        """What coordinator `number` is called in errors: itself, its plugin, and its node."""
        label, site = self.minds(cluster)[number]
        name = getattr(site.native, "name", "") or type(site.native).__name__
        return f"the coordinator {name} ({label}) on {site.host.name}"

    def placement(self, cluster: Cluster, tensors: Sequence[TensorSpec]) -> Placement:
        """The one placement, or the default (hook 4)."""
        answers = self._ask("geomx_placement", cluster=cluster, tensors=tensors)
        answer, servers = self._only(answers, "the placement"), len(cluster.global_servers)
        if answer is None:
            return ByTurns(servers)
        return CheckedPlacement(answer, f"{answers[0][0].label}: geomx_placement", servers)

    def cluster(self, cluster: Cluster) -> Cluster:
        """Who takes part, after every plugin has had its say (hook 11)."""
        for built, manager in zip(self._chosen, self._managers, strict=True):
            for answer in call(manager, built.label, "geomx_cluster", cluster=cluster):
                check_answer(built.label, "geomx_cluster", answer)
                if answer is not cluster:
                    self.changed_cluster.add(f"{built.label}: geomx_cluster")
                cluster = answer
        return cluster

    def update_at_party(self, cluster: Cluster) -> bool:
        """Whether local servers run the optimizer (hook 12)."""
        if not self.sync_policy(cluster).together:
            return False
        answers = self._ask("geomx_update", cluster=cluster)
        for built, answer in answers:
            if answer != "party":
                raise PluginError(f"{built.label}: geomx_update must return 'party' or None")
        return bool(answers)

    def optimizer(self) -> tuple[str, str, Optimizer] | None:
        """The one optimizer that a plugin brings: its name, whose it is, and itself (hook 14)."""
        answers = self._ask("geomx_optimizer")
        answer: Optimizer | None = self._only(answers, "the optimizer")
        if answer is None:
            return None
        built = answers[0][0]
        return built.plugin.name, f"{built.label}: geomx_optimizer", answer

    def overlays(self, cluster: Cluster) -> list[tuple[Group, Overlay]]:
        """The groups whose members talk with each other, and how (hook 13)."""
        return self.once(cluster, Selection._find_overlays)

    def _find_overlays(self, cluster: Cluster) -> list[tuple[Group, Overlay]]:
        groups = groups_of(cluster, self.sync_policy(cluster).together)
        answers = [(group, self._overlay(group)) for group in groups]
        return [(group, overlay) for group, overlay in answers if overlay is not None]

    def once(self, cluster: Cluster, find: Callable[[Selection, Cluster], Found]) -> Found:
        """What `find` says of this selection and `cluster`, kept until another cluster comes.

        For what every link of an experiment would ask anew: answers must be plain facts, since
        objects with a state of their own would be shared by all who ask.
        """
        if self._kept[0] is not cluster:
            self._kept = cluster, {}
        known = self._kept[1]
        if find not in known:
            known[find] = find(self, cluster)
        found: Found = known[find]
        return found

    def _overlay(self, group: Group) -> Overlay | None:
        answers = self._ask("geomx_overlay", group=group)
        for built, _ in answers:
            self._overlay_labels[group.root.id] = f"{built.label}: geomx_overlay"
        answer: Overlay | None = self._only(answers, f"the overlay of {group.root.name}")
        if answer is not None:
            check_overlay(self._overlay_labels[group.root.id], answer, group)
        return answer

    def overlay_label(self, root: NodeSpec) -> str:
        """Whose the overlay of that root's group is, for errors."""
        return self._overlay_labels.get(root.id, "")

    def partitioners(self, cluster: Cluster) -> list[Partitioner]:
        """The chain of partitioners (hook 5)."""
        answers = self.labelled("geomx_partitioner", cluster=cluster)
        return [CheckedPartitioner(answer, label) for label, answer in answers]

    def codecs(self, link: Link) -> list[Codec | Native | BySize]:
        """The chain of codecs on `link` (hook 6)."""
        return [answer for _, answer in self.labelled("geomx_codec", link=link)]

    def slicers(self, link: Link) -> list[Slicer | Native]:
        """The chain of slicers on `link` (hook 7)."""
        return [answer for _, answer in self.labelled("geomx_slicer", link=link)]

    def labelled(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        """The answers to a hook, in order, each with whose it is, for errors."""
        answers = self._ask(hook, **arguments)
        return [(f"{built.label}: {hook}", answer) for built, answer in answers]

    def deciders(self) -> list[tuple[str, list[str]]]:
        """Every accelerator, as errors name it, and the hooks that it may answer to with a part."""
        pairs = zip(self._chosen[1:], self._managers[1:], strict=True)
        return [
            (built.label, [hook for hook in ANSWERS if has_hook(m, hook)]) for built, m in pairs
        ]

    def blamed(self, error: BaseException) -> PluginError | None:
        """`error` as a plugin's, if it came out of code of one that is selected; else None.

        For what plugins' objects raise while an experiment runs: hooks themselves are asked with
        blame, and so are codecs and other parts on the data path. An error that was raised again
        with another's traceback, as SimPy does, is put down to where it came from.
        """
        raised: BaseException | None = error
        while raised is not None:
            for frame, line in reversed(list(traceback.walk_tb(raised.__traceback__))):
                if self.owner(frame) is not None:
                    return PluginError(f"{self.named(frame, line)} failed: {one_line(raised)}")
            raised = raised.__cause__
        return None

    def owner(self, frame: FrameType) -> Built | None:
        """Whose code runs in `frame`, of the plugins that are selected."""
        module = str(frame.f_globals.get("__name__", ""))
        for built in self._chosen:
            home = str(getattr(built.plugin.factory, "__module__", ""))
            if home and (module == home or module.startswith(f"{home}.")):
                return built
        return None

    def author(self, code: CodeType) -> Built | None:
        """Whose file `code` was written in, where no frame is left to tell: see `owner`."""
        for built in self._chosen:
            module = sys.modules.get(str(getattr(built.plugin.factory, "__module__", "")))
            if code.co_filename == getattr(module, "__file__", None):
                return built
        return None

    def named(self, frame: FrameType, line: int | None = None, kind: str = "") -> str:
        """What `frame` is a call of, for errors: plugin, hook, function, file and line.

        Args:
            frame: The call.
            line: Where in it; None: where it is now.
            kind: Put before the function, if it is not simply called.
        """
        built = self.owner(frame)
        where = f"{Path(frame.f_code.co_filename).name}:{line or frame.f_lineno}"
        whose = f"{built.label}: {_hook_of(frame.f_locals.get('self'))}" if built else ""
        return f"{whose}{kind}{frame.f_code.co_qualname} ({where})"

    def sim(self, simulation: Any) -> None:
        """Hook 8; what each plugin leaves as costs is looked at before the next is asked."""
        for built, manager in zip(self._chosen, self._managers, strict=True):
            for answer in call(manager, built.label, "geomx_sim", simulation=simulation):
                check_answer(built.label, "geomx_sim", answer)
            if hasattr(simulation, "costs"):
                check_costs(f"{built.label}: geomx_sim", simulation.costs)

    def live(self, runtime: Any) -> None:
        """Hook 9."""
        self._ask("geomx_live", runtime=runtime)

    def events(self, events: Any) -> None:
        """Hook 10."""
        self._ask("geomx_events", events=events)

    def _ask(self, hook: str, **arguments: Any) -> list[tuple[Built, Any]]:
        answers = []
        if hook not in self._askable:
            pairs = zip(self._chosen, self._managers, strict=True)
            self._askable[hook] = [pair for pair in pairs if has_hook(pair[1], hook)]
        for built, manager in self._askable[hook]:
            for answer in call(manager, built.label, hook, **arguments):
                check_answer(built.label, hook, answer)
                answers.append((built, answer))
        return answers

    def _only(self, answers: list[tuple[Built, Any]], what: str) -> Any:
        if len(answers) > 1:
            names = [built.plugin.name for built, _ in answers]
            accel = ",".join(name for name, _ in self.accel)
            raise ConfigError(
                "accel", f"[{accel}]", f"{' and '.join(names)} both decide {what}; choose one"
            )
        return answers[0][1] if answers else None


def _hook_of(answer: Any) -> str:
    """The hook that an object of a plugin answered, for errors; empty if it is none of these."""
    from geomx import plugin

    kinds = {
        "geomx_sync_policy": (plugin.SyncPolicy, plugin.WorkerSync),
        "geomx_placement": (plugin.Placement,),
        "geomx_partitioner": (plugin.Partitioner,),
    }
    hooks = [hook for hook, types in kinds.items() if isinstance(answer, types)]
    return f"{hooks[0]}: " if hooks else ""
