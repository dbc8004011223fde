"""GeoMX's environment variables, and the settings of geomx that follow from them.

Every process sends its variables to the first scheduler. `settle` converts them, and the settings
by the master worker's script, to the sync algorithm and the accelerators of the job. A variable
that has no effect, or contradicts another setting, is reported once with what is used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from geomx.errors import ConfigError
from geomx.plugin.registration import Choice

Number = TypeVar("Number", int, float)

HFA = "MXNET_KVSTORE_USE_HFA"
BOUND = "MXNET_KVSTORE_SIZE_LOWER_BOUND"
SLICE = "MXNET_KVSTORE_BIGARRAY_BOUND"
ALL_WORKERS = "DMLC_NUM_ALL_WORKER"
_DGT, _P3, _INTER, _INTRA = "ENABLE_DGT", "ENABLE_P3", "ENABLE_INTER_TS", "ENABLE_INTRA_TS"

# Variables that set the role of a process and addresses (`geomx.compat.roles`).
PLACES = (
    "DMLC_ROLE", "DMLC_ROLE_GLOBAL", "DMLC_ROLE_MASTER_WORKER", "DMLC_ENABLE_CENTRAL_WORKER",
    "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER",
    "DMLC_PS_GLOBAL_ROOT_URI", "DMLC_PS_GLOBAL_ROOT_PORT", "DMLC_NUM_GLOBAL_SERVER",
    "DMLC_NUM_GLOBAL_WORKER", ALL_WORKERS, "DMLC_INTERFACE", "DMLC_NODE_HOST",
    "DMLC_USE_KUBERNETES", "PS_VERBOSE", "DMLC_RANK", "DMLC_GLOBAL_RANK",
)  # fmt: skip

# Variables that switch a feature on, with those that only configure it.
FEATURES: dict[str, tuple[str, ...]] = {
    HFA: ("MXNET_KVSTORE_HFA_K1", "MXNET_KVSTORE_HFA_K2"),
    _DGT: (
        "DMLC_UDP_CHANNEL_NUM", "DMLC_K", "DMLC_K_MIN", "ADAPTIVE_K_FLAG",
        "DGT_CONTRIBUTION_ALPHA", "DGT_BLOCK_SIZE", "DGT_INFO",
    ),
    _INTER: (), _INTRA: (), _P3: (),
}  # fmt: skip
_THRESHOLDS = (SLICE, BOUND, "PS_HEARTBEAT_TIMEOUT")

OBSOLETE = {
    "DGT_INFO": "counts of lost and late blocks are in the run's notes",
    "PORT": "all but schedulers listen on any free port",
    "DMLC_LOCAL": "processes of one machine talk over loopback connections",
    "PS_RESEND": "connections lose nothing",
    "PS_RESEND_TIMEOUT": "connections lose nothing",
    "PS_DROP_MSG": "no message is dropped; network=... emulate=shaper emulates lossy links",
    "PS_HEARTBEAT_INTERVAL": "heartbeats are always sent, four within PS_HEARTBEAT_TIMEOUT",
    "MXNET_KVSTORE_DIST_ROW_SPARSE_VERBOSE": "row-sparse arrays are sent like others",
    "MXNET_KVSTORE_REDUCTION_NTHREADS": "geomx uses the machine's cores, shared by its processes",
    "MXNET_KVSTORE_SERIAL_PUSH": "arrays of several devices are added in order anyway",
    "MXNET_KVSTORE_USETREE": "arrays of several devices are added in order",
    "MXNET_KVSTORE_TREE_ARRAY_BOUND": "arrays of several devices are added in order",
    "MXNET_KVSTORE_TREE_BACKTRACK": "arrays of several devices are added in order",
    "MXNET_KVSTORE_TREE_LINK_USAGE_PENALTY": "arrays of several devices are added in order",
    "MXNET_KVSTORE_LOGTREE": "there is no tree",
    "MXNET_ENABLE_GPU_P2P": "MXNet itself copies between devices",
}
"""Variables without effect, and why."""

KNOWN = (
    *PLACES,
    *FEATURES,
    *dict.fromkeys(name for names in FEATURES.values() for name in names),
    *_THRESHOLDS,
    "MAX_GREED_RATE_TS",
    *OBSOLETE,
)
"""Every variable that processes report."""


@dataclass(frozen=True)
class Settings:
    """Settings by the master worker's script, made before the first push or pull.

    Attributes:
        type: ``dist_sync``, ``dist_async`` or another of MXNet's names.
        compression: As given to ``set_gradient_compression``.
        keys: Number of elements and type of every initialised key.
    """

    type: str = "dist_sync"
    compression: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[tuple[int, str]] = ()


@dataclass
class JobSettings:
    """Settings of a job, as in `geomx.live.spec.Spec`; `notes` are for the user."""

    sync: Choice
    accel: tuple[Choice, ...]
    runtime: dict[str, Any]
    notes: list[str]


class Variables:
    """The variables of all processes. If they differ, the first process takes precedence.

    Args:
        environs: Names of processes with their variables, in the order of precedence: servers
            first.
    """

    def __init__(self, environs: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        self.notes: list[str] = []
        self._values: dict[str, str] = {}
        for name in KNOWN:
            given = [(process, environ[name]) for process, environ in environs if environ.get(name)]
            if not given:
                continue
            first, value = given[0]
            self._values[name] = value
            for process, other in given[1:]:
                if other != value and name not in PLACES:
                    self.notes.append(
                        f"{name}: {value} for {first} but {other} for {process}; {value} is used"
                    )
                    break

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def on(self, name: str) -> bool:
        """Return whether a feature is switched on."""
        return self.number(name, int, 0) > 0

    def number(self, name: str, kind: Callable[[str], Number], default: Number) -> Number:
        """Return the value of a variable.

        Args:
            name: Name of the variable.
            kind: ``int`` or ``float``.
            default: Value if it is not set.

        Raises:
            ConfigError: It is not a number.
        """
        if name not in self._values:
            return default
        try:
            return kind(self._values[name])
        except ValueError as error:
            remedy = "must be a whole number" if kind is int else "must be a number"
            raise ConfigError(name, self._values[name], remedy) from error

    def options(self, **named: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        """Return the options of a plugin whose variables are set.

        Args:
            named: Variable and type by option.
        """
        return {
            option: self.number(name, kind, 0)
            for option, (name, kind) in named.items()
            if name in self._values
        }

    def note(self, name: str, what: str) -> None:
        """Add a remark for the user.

        Args:
            name: Name of the variable.
            what: Its effect.
        """
        self.notes.append(f"{name}={self._values[name]}: {what}")


def settle(variables: Variables, wish: Settings, global_servers: int) -> JobSettings:
    """Determine the settings of a job.

    Args:
        variables: The variables.
        wish: Settings by the master worker's script.
        global_servers: Number of global servers.

    Raises:
        ConfigError: A value is invalid.
    """
    for name, instead in OBSOLETE.items():
        if name in variables and variables[name] not in ("0", "false"):
            variables.note(name, f"has no effect: {instead}")
    for switch, others in FEATURES.items():
        for name in others:
            if name in variables and name not in OBSOLETE and not variables.on(switch):
                variables.note(name, f"has no effect without {switch}=1")
    sync = _sync(variables, wish)
    accel = [*_codecs(variables, wish, together=sync[0] != "mixedsync")]
    if variables.on(_DGT):
        accel.append(("dgt", _dgt(variables)))
    if global_servers > 1:
        accel.append(("multigps", variables.options(shard_elements=(SLICE, int))))
    if variables.on(_P3):
        accel.append(("p3", variables.options(slice_elements=(SLICE, int))))
    if variables.on(_INTER) or variables.on(_INTRA):
        within = {"inter": variables.on(_INTER), "intra": variables.on(_INTRA)}
        accel.append(
            ("tsengine", {**within, **variables.options(greed=("MAX_GREED_RATE_TS", float))})
        )
    elif "MAX_GREED_RATE_TS" in variables:
        variables.note("MAX_GREED_RATE_TS", f"has no effect without {_INTER}=1 or {_INTRA}=1")
    patience = variables.number("PS_HEARTBEAT_TIMEOUT", float, 0.0)
    runtime = {"failure_timeout_s": patience} if patience > 0 else {}
    return JobSettings(sync, tuple(accel), runtime, variables.notes)


def _sync(variables: Variables, wish: Settings) -> Choice:
    if not variables.on(HFA):
        return ("mixedsync", {}) if "async" in wish.type else ("fsa", {})
    if "async" in wish.type:
        variables.note(HFA, f"contradicts {wish.type}, which is treated as dist_sync")
    periods = variables.options(k1=("MXNET_KVSTORE_HFA_K1", int), k2=("MXNET_KVSTORE_HFA_K2", int))
    return "hfa", {"k1": 1, "k2": 1, **periods, "weighting": "parties"}


def _dgt(variables: Variables) -> dict[str, Any]:
    if variables[_DGT] != "1":
        variables.note(_DGT, "is treated as 1: blocks that contribute little are sent as datagrams")
    options = variables.options(
        channels=("DMLC_UDP_CHANNEL_NUM", int),
        k=("DMLC_K", float),
        k_min=("DMLC_K_MIN", float),
        alpha=("DGT_CONTRIBUTION_ALPHA", float),
        block_bytes=("DGT_BLOCK_SIZE", int),
    )
    options.setdefault("k", 0.5)
    options.setdefault("k_min", min(0.2, options["k"]))
    return {**options, "adaptive": variables.on("ADAPTIVE_K_FLAG")}


def _codecs(variables: Variables, wish: Settings, together: bool) -> list[Choice]:
    """Return codecs for the compression that the master requests and for half-precision keys."""
    kind = wish.compression.get("type")
    threshold = float(wish.compression.get("threshold", 0.5))
    half = [elements for elements, dtype in wish.keys if dtype == "float16"]
    others = [elements for elements, dtype in wish.keys if dtype != "float16"]
    if kind == "2bit":
        found: list[Choice] = [("twobit", {"threshold": threshold})]
    elif kind == "bsc":
        bound = variables.number(BOUND, int, 200_000)
        sparse = {"ratio": threshold, "momentum": 0.9, "warmup_rounds": 0, "pull": together}
        sparse |= {"steps": False, "flush": False}
        # As in GeoMX's scripts: what has more elements than the bound is float32.
        if half and others and max(half) <= bound < min(others):
            return [("mpq", {**sparse, "size_lower_bound": bound + 1})]
        found = [("bisparse", {**sparse, "min_elements": bound})]
    elif kind in (None, "none"):
        found = []
    else:
        raise ConfigError("gradient_compression", kind, "must be bsc, 2bit or none")
    if half and not others:
        found.append(("fp16", {}))
    elif half:
        variables.notes.append("there are float16 and float32 keys: all are sent as float32")
    return found
