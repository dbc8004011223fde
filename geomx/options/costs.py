"""Execution times of endpoints and layers on a machine, with their source.

`Costs` contains the simulated execution times of endpoints: seconds per message and per byte of
each kind of work. The defaults were measured on the machine `SHIPPED`; ``costs=NAME`` selects other
costs that come with geomx (`geomx.options.named_costs`), and ``costs=FILE`` reads a file that
``geomx calibrate`` has measured on a machine (docs/calibration.md). Such a file may also contain
the times of a workload's layers, which replace the workload's own in both modes: exactly in
simulation, and as the minimum duration of a step in live emulation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval

from geomx.errors import ConfigError
from geomx.options.bounds import Amount, Count

WORK = ("send", "receive", "encode", "decode", "aggregate", "update")
"""The kinds of work of an endpoint, each with seconds per message and per byte."""

SHIPPED_SOURCE, GIVEN = "shipped", "given"


Seconds = Annotated[float, Interval(ge=0, le=1e6)]
"""The duration of a piece of work."""


@dataclass
class Measured:
    """Where, when and with which version costs were measured."""

    # The processor's name.
    machine: str = ""
    # Cores that the measuring process was allowed to use.
    cores: int = 0
    # UTC, ISO 8601.
    date: str = ""
    # Version of geomx.
    geomx: str = ""
    # Half the interquartile range divided by the median, by name of the cost.
    spread: dict[str, float] = field(default_factory=dict)


SHIPPED = Measured("Intel(R) Xeon(R) Processor @ 2.10GHz", 2, "2026-11-21T09:17:54Z", "0.1.0")
"""The source of the defaults of `Costs`."""


@dataclass
class LayerTimes:
    """Measured times of a workload's layers, on a worker of speed 1.0, in seconds."""

    # Samples per step during the measurement.
    batch_size: Count
    # Worker processes that computed at the same time on the machine.
    processes: Count
    # Names of the layers, in forward order.
    layers: list[str]
    forward_s: list[Seconds]
    backward_s: list[Seconds]
    # Half the interquartile range of a step's duration divided by its median.
    spread: float = 0.0

    def __post_init__(self) -> None:
        """Refuse times of other layers."""
        for name in ("forward_s", "backward_s"):
            times = getattr(self, name)
            if len(times) != len(self.layers):
                remedy = f"must hold one time for each of the {len(self.layers)} layers"
                raise ConfigError(name, times, remedy)


@dataclass
class CodecCosts:
    """Execution times of one accelerator's codecs, per tensor and per byte of dense float32."""

    encode_message_s: Seconds = 0.0
    encode_byte_s: Seconds = 0.0
    decode_message_s: Seconds = 0.0
    decode_byte_s: Seconds = 0.0
    # The source: how, where and when the times were measured.
    basis: str = ""


@dataclass
class DeviceCosts:
    """Costs of tensors on a GPU, of workers or servers; `geomx calibrate` measures them.

    The defaults are those that the command measured on one machine (`basis`). They are wall-clock
    times of single operations: queued ones, which the device executes one after the other without
    waiting for the host, take less per message.
    """

    # The device.
    name: str = "NVIDIA H200"
    # The source: how the costs were measured or derived.
    basis: str = "measured on 2026-11-28 with CUDA 13.0 and an Intel Xeon"
    # Copying between the device and the host.
    copy_message_s: Seconds = 8.66e-06
    copy_byte_s: Seconds = 1.811e-11
    # Encoding or decoding on the device, by codecs with kernels for it; per byte of float32 values,
    # each of which reads or writes 1.5 bytes of memory.
    encode_message_s: Seconds = 1.111e-05
    encode_byte_s: Seconds = 3.587e-13
    # A server's optimizer on the device; each byte of weights reads or writes 5 bytes (momentum).
    update_message_s: Seconds = 1.036e-05
    update_byte_s: Seconds = 1.162e-12


@dataclass
class Costs:
    """Execution times of endpoints, per message and per byte; `geomx calibrate` measures them."""

    # Sending a message.
    send_message_s: Seconds = 7.472e-06
    send_byte_s: Seconds = 2.088e-10
    # Receiving a message.
    receive_message_s: Seconds = 7.472e-06
    receive_byte_s: Seconds = 2.088e-10
    # Encoding, per byte before encoding; for accelerators that `codecs` does not list.
    encode_message_s: Seconds = 9.206e-07
    encode_byte_s: Seconds = 1.203e-10
    # Decoding, per byte after decoding; for accelerators that `codecs` does not list.
    decode_message_s: Seconds = 8.514e-07
    decode_byte_s: Seconds = 3.666e-11
    # Adding a received tensor to a sum, as far as it can be measured separately from receiving.
    aggregate_message_s: Seconds = 0.0
    aggregate_byte_s: Seconds = 3.209e-11
    # An update by the optimizer of a global server.
    update_message_s: Seconds = 1.057e-06
    update_byte_s: Seconds = 1.155e-10
    # Number of cores that all simulated nodes share; 0: each node has its own core; null: this
    # machine's cores for the prediction of mode=both, as live nodes share them, otherwise 0.
    cores: Amount | None = None
    # Costs of tensors on a GPU, in addition to or instead of the above.
    device: DeviceCosts = field(default_factory=DeviceCosts)
    # Whether workers' tensors are on a GPU; null: as workload.device. For servers see
    # runtime.server_device.
    on_device: bool | None = None
    # Use the encoding and decoding times that accelerators supply, unless `codecs` lists them;
    # false: use the general times above.
    by_plugin: bool = False
    # Encoding and decoding times by accelerator.
    codecs: dict[str, CodecCosts] = field(default_factory=dict)
    # Measured times of layers by workload, which replace the workload's own.
    compute: dict[str, LayerTimes] = field(default_factory=dict)
    # Where these costs were measured.
    measured: Measured = field(default_factory=lambda: dataclasses.replace(SHIPPED))
    # The file or name that selected these costs; shipped: the defaults.
    source: str = SHIPPED_SOURCE
    # How costs that were not measured were derived.
    basis: str = ""

    def of(self, work: str, accelerators: tuple[str, ...] = ()) -> tuple[float, float]:
        """Return the seconds per message and per byte of a kind of work.

        Args:
            work: One of `WORK`.
            accelerators: The selected accelerators. Encoding and decoding cost the sum over those
                that are listed in `codecs`, or the general costs if none is listed.

        Returns:
            Seconds per message, seconds per byte.
        """
        names = f"{work}_message_s", f"{work}_byte_s"
        known = [self.codecs[name] for name in accelerators if name in self.codecs]
        if work in ("encode", "decode") and known:
            message_s, byte_s = (sum(getattr(costs, name) for costs in known) for name in names)
            return message_s, byte_s
        message_s, byte_s = (getattr(self, name) for name in names)
        return message_s, byte_s

    def about(self, on_device: bool = False) -> dict[str, Any]:
        """Return the origin of the costs for ``summary.json``.

        Args:
            on_device: Whether the costs of `device` apply.

        Returns:
            JSON fields.
        """
        device = {"name": self.device.name, "basis": self.device.basis} if on_device else None
        changed = any(getattr(self, name) != getattr(Costs, name) for name in FIGURES)
        source = GIVEN if changed and self.source == SHIPPED_SOURCE else self.source
        facts = {name: getattr(self.measured, name) for name in ("machine", "cores", "date")}
        return {
            "source": source,
            "measured": None if source == GIVEN or self.basis else facts,
            "basis": self.basis or None,
            "shared_cores": self.cores or None,
            "device": device,
            "workloads": sorted(self.compute),
            **({"by_plugin": True} if self.by_plugin else {}),
        }


FIGURES = tuple(f"{work}_{per}_s" for work in WORK for per in ("message", "byte"))
"""The fields of `Costs` that are times."""

Figures = Mapping[str, tuple[float, float]]
"""Seconds per message and per byte, by kind of work."""
