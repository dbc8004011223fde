"""Overrides of commands that compose the experiment of a job file, whose other words are flags."""

from __future__ import annotations

import argparse

from geomx.config.own_files import FLAG, with_folder_searched


def add(parser: argparse.ArgumentParser, which: str) -> None:
    """Add overrides, and the flag of a folder with presets, to the arguments of a command.

    Args:
        parser: Of the command.
        which: What the help says of the overrides.
    """
    parser.add_argument("overrides", nargs="*", help=which)
    parser.add_argument("-cd", FLAG, metavar="FOLDER", help="a folder with presets of your own")


def given(options: argparse.Namespace) -> list[str]:
    """Return the overrides of a command, with ``hydra.searchpath`` in place of the flag.

    Args:
        options: Its parsed arguments.

    Raises:
        ConfigError: The flag names no folder.
    """
    folder = [] if options.config_dir is None else [f"{FLAG}={options.config_dir}"]
    return with_folder_searched([*options.overrides, *folder])
