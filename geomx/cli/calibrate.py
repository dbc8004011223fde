"""The command ``geomx calibrate``: its arguments, its output, and its files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from geomx import calibrate
from geomx.calibrate.probe import serve
from geomx.calibrate.sites import network_of, survey
from geomx.cli.parser import Parser, line
from geomx.config.compose import compose
from geomx.config.own_files import with_folder_searched
from geomx.errors import ConfigError
from geomx.terminal.output import show

DESCRIPTION = "Measure this machine, and the network between sites, as a basis of predictions."
COSTS, NETWORK = "costs.yaml", "network.yaml"


def main(arguments: Sequence[str]) -> None:
    """Measure this machine and paths between sites, or run a probe.

    Args:
        arguments: Arguments after ``calibrate``.

    Raises:
        ConfigError: An argument is invalid.
        GeomxError: A measurement failed.
    """
    parser = Parser(prog="geomx calibrate", description=DESCRIPTION)
    parser.add_argument(
        "overrides", nargs="*", help="as for a run: workload=..., network=..., '+accel=[...]'"
    )
    parser.add_argument(
        "--output", default="calibration", metavar="DIR", help="where the files go (calibration)"
    )
    parser.add_argument(
        "--probe", nargs="+", default=[], metavar="SITE=HOST:PORT",
        help="also measure the network between sites, by probes started there with --serve",
    )  # fmt: skip
    parser.add_argument("--serve", metavar="HOST:PORT", help="run a site's probe until Ctrl-C")
    words = with_folder_searched(arguments)
    with line(["calibrate", *arguments]):
        options = parser.parse_intermixed_args(words)
    if options.serve:
        serve(options.serve, show)
        return
    with tempfile.TemporaryDirectory() as scratch:
        experiment, _ = compose(options.overrides, directory=Path(scratch))
    output = Path(options.output)
    _check(output)  # now, since measuring takes a while
    if options.probe:  # first, since probes are more likely to fail
        found = survey(options.probe, experiment.cluster)
        header = (
            "# Written by `geomx calibrate`; use it as network=FILE. See docs/calibration.md.\n"
        )
        keep(output / NETWORK)
        calibrate.write(network_of(found, experiment.cluster), output / NETWORK, header)
        show(f"network={output / NETWORK}")
    content = calibrate.run(experiment)
    keep(output / COSTS)
    calibrate.write(content, output / COSTS)
    show(calibrate.table(content))
    show(f"costs={output / COSTS}")


def keep(file: Path) -> None:
    """Give an earlier file of the name that is to be written another name, and tell it.

    Args:
        file: The file to be written.
    """
    if not file.is_file() or file.is_symlink():  # such as /dev/stdout
        return
    names = (file.with_name(f"{file.stem}-{number}{file.suffix}") for number in count(1))
    free = next(each for each in names if not each.exists())
    file.rename(free)
    show(f"{file} was there already, and is {free} now")


def _check(output: Path) -> None:
    """Check that files can be left in a folder, which need not be there yet.

    Raises:
        ConfigError: They cannot.
    """
    there = next(each for each in (output, *output.absolute().parents) if each.exists())
    if not there.is_dir():
        what = "must be a folder" if there == output else f"cannot be made: {there} is a file"
        raise ConfigError("--output", output, what)
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        remedy = f"cannot be written ({error.strerror}); choose another folder"
        raise ConfigError("--output", output, remedy) from error
