"""What endpoints and layers take on a machine: figures, where they come from, what they hold for.

The simulator charges endpoints by `Costs`: seconds per message and per byte of each kind of work.
Its defaults were measured on the machine that `SHIPPED` names; ``costs=NAME`` takes others that
come with geomx (`geomx.options.named_costs`), and ``geomx calibrate`` measures a machine's and
writes a file that ``costs=FILE`` reads (see docs/calibration.md). Such a file may also hold the
times of a workload's layers, which then replace the workload's own in both modes: in simulation as
they are, in live emulation as the least that a step takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge

from geomx.errors import ConfigError
from geomx.options.bounds import Amount, Count

WORK = ("send", "receive", "encode", "decode", "aggregate", "update")
"""What an endpoint does with messages; each kind has two figures."""

SHIPPED_SOURCE, GIVEN = "shipped", "given"


Seconds = Annotated[float, Ge(0)]
"""What a piece of work takes."""


@dataclass
class Measured:
    """Where, when and by which version figures were measured."""

    # The processor's name.
    machine: str = ""
    # Cores that the measuring process could use.
    cores: int = 0
    # UTC, ISO 8601.
    date: str = ""
    # Version of geomx.
    geomx: str = ""
    # Half the distance of the quartiles over the median, by figure.
    spread: dict[str, float] = field(default_factory=dict)


SHIPPED = Measured("Intel(R) Xeon(R) Processor @ 2.10GHz", 2, "2026-11-21T09:17:54Z", "0.1.0")
"""Where the defaults of `Costs` come from."""


@dataclass
class LayerTimes:
    """Measured times of a workload's layers, on a worker of speed 1.0, in seconds."""

    # Samples per step when they were measured.
    batch_size: Count
    # Worker processes that computed at the same time, on the machine's cores.
    processes: Count
    # Names of the layers, in forward order.
    layers: list[str]
    forward_s: list[Seconds]
    backward_s: list[Seconds]
    # Half the distance of a step's quartiles over its median.
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
    """What one accelerator's codecs take, in seconds per tensor and per byte of dense float32."""

    encode_message_s: Seconds = 0.0
    encode_byte_s: Seconds = 0.0
    decode_message_s: Seconds = 0.0
    decode_byte_s: Seconds = 0.0
    # Where the figures come from: how, where and when they were measured.
    basis: str = ""


@dataclass
class DeviceCosts:
    """What it takes that tensors of workers or servers lie on a GPU; `geomx calibrate` measures it.

    The shipped figures were measured nowhere: bytes go at the bandwidths that NVIDIA publishes for
    the device named, which is the best that can be; the times per message are assumed.
    """

    # The device.
    name: str = "NVIDIA H200 SXM"
    # Where the figures come from; measured, or what they were derived from.
    basis: str = "published peaks (memory 4.8 TB/s, bus 64 GB/s each way), assumed latencies"
    # Starting a copy between the device and the host, and its bytes.
    copy_message_s: Seconds = 1e-05
    copy_byte_s: Seconds = 1.56e-11
    # Encoding or decoding there, by codecs with kernels for it; bytes of float32 values, 1.5 of
    # memory for each.
    encode_message_s: Seconds = 5e-06
    encode_byte_s: Seconds = 3.13e-13
    # A server's optimizer there; 5 bytes of memory for each of the weights (momentum).
    update_message_s: Seconds = 5e-06
    update_byte_s: Seconds = 1.04e-12


@dataclass
class Costs:
    """What endpoints spend, in seconds per message and per byte; calibration measures them."""

    # Handing a message to the network.
    send_message_s: Seconds = 7.472e-06
    send_byte_s: Seconds = 2.088e-10
    # Taking a message from the network.
    receive_message_s: Seconds = 7.472e-06
    receive_byte_s: Seconds = 2.088e-10
    # Encoding with a codec; bytes before encoding. For accelerators that `codecs` does not list.
    encode_message_s: Seconds = 9.206e-07
    encode_byte_s: Seconds = 1.203e-10
    # Decoding; bytes after decoding. Likewise.
    decode_message_s: Seconds = 8.514e-07
    decode_byte_s: Seconds = 3.666e-11
    # Adding a received tensor to a sum, as far as it can be told from receiving it.
    aggregate_message_s: Seconds = 0.0
    aggregate_byte_s: Seconds = 3.209e-11
    # The optimizer's step on a global server.
    update_message_s: Seconds = 1.057e-06
    update_byte_s: Seconds = 1.155e-10
    # Cores that all simulated nodes share; 0: each node has its own; null: this machine's in the
    # prediction of mode=both, where live nodes share them, and otherwise each node has its own.
    cores: Amount | None = None
    # What is charged in addition, or instead, where tensors lie on a GPU.
    device: DeviceCosts = field(default_factory=DeviceCosts)
    # Whether workers' do; null: as the workload says (workload.device). For servers see
    # runtime.server_device.
    on_device: bool | None = None
    # Charge encoding and decoding by the figures that accelerators' plugins bring, where `codecs`
    # does not list them; false: by the general figures above.
    by_plugin: bool = False
    # Encoding and decoding by accelerator.
    codecs: dict[str, CodecCosts] = field(default_factory=dict)
    # Measured times of layers by workload; they replace the workload's own.
    compute: dict[str, LayerTimes] = field(default_factory=dict)
    # Where these figures were measured.
    measured: Measured = field(default_factory=lambda: dataclasses.replace(SHIPPED))
    # The file they were read from, or their name; shipped: the defaults.
    source: str = SHIPPED_SOURCE
    # What figures that were not measured were derived from.
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
