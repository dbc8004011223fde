"""``geomx calibrate``: measures on real machines what predictions start from.

`run` measures the endpoints of the runtime, the codecs of accelerators and the layers of a workload
on this machine, and returns the content of a costs file for ``costs=FILE``. If sites are named,
their probes also measure the network between them (`geomx.calibrate.sites`), which gives a network
file for ``network=FILE``. See docs/calibration.md for method and accuracy.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from geomx.calibrate import codecs, device, endpoints, layers
from geomx.calibrate.fit import fit
from geomx.experiment.costs import this_machine
from geomx.experiment.experiment import Experiment
from geomx.options.costs import WORK, Costs, DeviceCosts
from geomx.options.parsing import build_options
from geomx.plugin.registry import Registry
from geomx.terminal.progress import progress
from geomx.version import __version__

REPEATS = 25
CODEC_REPEATS = 15
LAYERS_S = 6.0

HEADER = "# Written by `geomx calibrate`; use it as costs=FILE. Seconds; see docs/calibration.md.\n"


def run(experiment: Experiment) -> dict[str, Any]:
    """Measure this machine.

    Args:
        experiment: Supplies the workload, the number of workers and the options of its
            accelerators.

    Returns:
        The content of a costs file (`geomx.options.costs.Costs`), times in seconds.

    Raises:
        GeomxError: A process failed.
    """
    accelerators = sum(plugin.kind == "accel" for plugin in Registry.discover().plugins())
    total = len(endpoints.ELEMENTS) + accelerators + len(experiment.cluster.workers)
    with progress(total, "measuring") as bar:

        def advance() -> None:
            bar(1)

        links, spread = fit(endpoints.measure(REPEATS, advance))
        update, update_spread = fit(endpoints.measure_update(experiment.workload.optimizer, 9))
        by_accelerator, codec_spread = codecs.measure(experiment, CODEC_REPEATS, advance)
        times = layers.measure(experiment, LAYERS_S, advance)
    beside: dict[str, Any] = {}
    if there := device.gpu():
        beside, device_spread = device.measure(*there, REPEATS)
        spread |= {f"device.{name}": value for name, value in device_spread.items()}
    added = {"aggregate_message_s": 0.0, "aggregate_byte_s": links["aggregate_byte_s"]}
    figures = update | codecs.general(by_accelerator) | added
    spread |= update_spread | codec_spread
    for per, name in (("message", endpoints.MESSAGE), ("byte", endpoints.BYTE)):
        for work in ("send", "receive"):
            figures[f"{work}_{per}_s"] = links[name]
            spread[f"{work}_{per}_s"] = spread[name]
    for name in (endpoints.MESSAGE, endpoints.BYTE, endpoints.VERB):
        del spread[name]
    machine, cores = this_machine()
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return {
        "measured": {
            "machine": machine,
            "cores": cores,
            "date": now.isoformat().replace("+00:00", "Z"),
            "geomx": __version__,
            "spread": {name: round(value, 3) for name, value in sorted(spread.items())},
        },
        **{name: _short(figures[name]) for name in sorted(figures)},
        **({"device": _shortened_device(beside)} if beside else {}),
        "codecs": {
            name: {figure: _short(value) for figure, value in costs.items()}
            for name, costs in by_accelerator.items()
        },
        "compute": {} if times is None else {experiment.workload.name: _shortened(times)},
    }


def write(content: dict[str, Any], path: Path, header: str = HEADER) -> None:
    """Write a YAML file for ``costs=`` or ``network=``.

    Args:
        content: The content of the file.
        path: The file; missing folders are created.
        header: Comment lines at its top.
    """
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=96)
    path.write_text(header + text, encoding="utf-8")


def table(content: dict[str, Any]) -> Any:
    """Return the main values of a costs file as a table for `rich.print`.

    Args:
        content: The content of a costs file, as `run` returns it.

    Raises:
        ConfigError: `content` is not that of a costs file.
    """
    from rich.table import Table

    costs = build_options(Costs, content, "costs")
    measured = costs.measured
    shown = Table("work", title=f"{measured.machine}, {measured.cores} cores", title_justify="left")
    for column in ("per message", "spread", "per byte", "spread"):
        shown.add_column(column, justify="right")

    def add(name: str, key: str, values: Any, work: str) -> None:
        names = f"{work}_message_s", f"{work}_byte_s"
        message_s, byte_s = (getattr(values, each) for each in names)
        spreads = [measured.spread.get(key + each) for each in names]
        told = ["" if value is None else f"{value:.0%}" for value in spreads]
        shown.add_row(name, f"{message_s * 1e6:.2f} µs", told[0], f"{byte_s * 1e9:.3f} ns", told[1])

    for work in WORK:
        add(work, "", costs, work)
    if costs.device != DeviceCosts():
        for work in ("copy", "encode", "update"):
            add(f"{work}, GPU", "device.", costs.device, work)
    for accel, values in costs.codecs.items():
        for work in ("encode", "decode"):
            add(f"{work}, {accel}", f"codecs.{accel}.", values, work)
    for workload, times in costs.compute.items():
        forward_ms, backward_ms = (1e3 * sum(each) for each in (times.forward_s, times.backward_s))
        shown.caption = (
            f"{workload}: {forward_ms:.1f} ms forward, {backward_ms:.1f} ms backward per step of "
            f"{times.batch_size} samples, {times.processes} workers at once "
            f"(spread {times.spread:.0%})"
        )
        shown.caption_justify = "left"
    return shown


def _short(value: float) -> float:
    """Round to four significant digits; the measurements support no more."""
    return float(f"{value:.4g}")


def _shortened_device(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _short(value) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _shortened(times: dict[str, Any]) -> dict[str, Any]:
    lists = {name: [_short(value) for value in times[name]] for name in ("forward_s", "backward_s")}
    return {**times, **lists, "spread": round(times["spread"], 3)}
