"""Configuration files of the user's own: the folders in which Hydra finds them, and their content.

Hydra searches the folder of ``--config-dir`` and those of ``hydra.searchpath``. A run records the
second, so that its words alone repeat it.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource

from geomx.config.defaults import check_defaults
from geomx.errors import ConfigError
from geomx.experiment.words import at, check_truths
from geomx.plugin.registration import LISTS
from geomx.plugin.registry import Registry
from geomx.results.words import SEARCHED, key_of
from geomx.yaml_files import YamlError, read_yaml

CONF = "geomx.conf"
"""Package of the configuration."""

FLAG = "--config-dir"
FILE = "file"
"""Scheme of the user's folders, by which Hydra tells them from packages."""


def with_folder_searched(words: Sequence[str]) -> list[str]:
    """Return the words of a command with ``hydra.searchpath`` in place of ``--config-dir``.

    Args:
        words: Overrides, and perhaps flags of the command.

    Raises:
        ConfigError: The flag names no folder.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-cd", FLAG)

    def refuse(message: str) -> NoReturn:
        raise ConfigError("flags", " ".join(words), message)

    parser.error = refuse  # type: ignore[method-assign]
    given, left = parser.parse_known_args(list(words))
    folder = given.config_dir
    if folder is None:
        return list(words)
    if (remedy := no_folder(folder)) is not None:
        refuse(remedy)
    return [*(word for word in left if key_of(word) != SEARCHED), *searched(folder, left)]


def no_folder(folder: str) -> str | None:
    """Return what is wrong with the folder of the flag; None if it is there."""
    if not folder:  # as an unset variable leaves it
        return f"{FLAG} must name a folder; the present one is ."
    return None if Path(folder).is_dir() else f"there is no folder {folder}"


def searched(folder: str | None, words: Sequence[str]) -> list[str]:
    """Return the overrides by which another run finds the user's files.

    Args:
        folder: That of ``--config-dir``, if there is one.
        words: Overrides, of which some may name other folders.
    """
    found = [word for word in words if key_of(word) == SEARCHED]
    if folder is None:
        return found
    places: list[Any] = [f"file://{Path(folder).absolute()}"]
    try:
        for named in [OverridesParser.create().parse_override(word).value() for word in found[-1:]]:
            places += named if isinstance(named, list) else [named]
    except HydraException:  # which refuses them
        return found
    return [f"{SEARCHED}=[{','.join(_quoted(str(place)) for place in places)}]"]


def check_places(override: str) -> None:
    """Refuse places of the user's files of which Hydra cannot read any.

    Args:
        override: Of `SEARCHED`.

    Raises:
        ConfigError: One of them has a scheme that Hydra does not have.
        HydraException: It has another syntax.
    """
    Plugins.instance()  # which registers the schemes
    named = OverridesParser.create().parse_overrides([override])[0].value()
    for place in map(str, named if isinstance(named, list) else []):
        scheme, separator, _ = place.partition("://")
        if separator and scheme not in SourcesRegistry.instance().types:
            raise ConfigError(SEARCHED, place, "must be file:///FOLDER or pkg://PACKAGE")


def _quoted(place: str) -> str:
    if re.fullmatch(r"[\w./:-]+", place, re.ASCII):
        return place
    escaped = re.sub(r'(["\\])', r"\\\1", place).replace("${", r"\${")
    return f'"{escaped}"'


def _content(file: Path, group: str) -> Any:
    try:
        return read_yaml(file)
    except YamlError as error:
        raise ConfigError(group or "configuration", file.stem, f"{file} {error}") from error


_load = ConfigRepository.load_config


def _load_checked(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
    """Load a file as Hydra does, which follows aliases as far as they go, once it is usable.

    Files of other programs that use Hydra in this process are not checked.
    """
    if not any(source.path == CONF for source in repository.get_sources()):
        return _load(repository, config_path)
    source = repository._find_object_source(config_path, ObjectType.CONFIG)
    if source is not None and source.scheme() == FILE:
        file = Path(source.path, source._normalize_file_name(config_path))
        group, _, _ = config_path.rpartition("/")
        check_defaults(_content(file, group), group, file)
    return _load(repository, config_path)


ConfigRepository.load_config = _load_checked  # type: ignore[assignment,method-assign]


def check_own_files(runtime: Any, content: Mapping[str, Any], registry: Registry) -> None:
    """Check the chosen files that are in a folder of the user's, of an experiment or any group.

    Args:
        runtime: Hydra's ``hydra.runtime``.
        content: The values that Hydra has made of them and of the overrides, by key.
        registry: The installed plugins.

    Raises:
        ConfigError: Hydra has made something else of one of their values, or one of them is in
            the place of a plugin that there is not.
    """
    folders = [Path(each.path) for each in runtime.config_sources if each.schema == FILE]
    for choice, chosen in runtime.choices.items():
        group, _, place = choice.partition("@")
        names = [chosen] if isinstance(chosen, str) else chosen or ()
        for file in (folder / group / f"{name}.yaml" for folder in folders for name in names):
            if file.is_file():
                said = _content(file, group)
                key = "" if place == "_global_" else place or _package(file, group)
                check_truths(said, at(content, key), file, key)
                if group in ("sync", "workload") and file.stem not in _names(registry, group):
                    raise ConfigError(group, file.stem, _NO_NAME.format(file=file, group=group))
    for group in LISTS:
        unknown = set(content.get(group) or ()) - _names(registry, group)
        for folder in folders if unknown else ():
            for file in sorted(folder.glob(f"{group}/*.yaml")):
                _check_table(group, unknown, file)


_NO_NAME = (
    "{file} has options, but its name is no plugin's; a file FOLDER/experiment/NAME.yaml chooses "
    "a plugin ('- override /{group}: NAME') and sets its options"
)


def _check_table(group: str, unknown: set[str], file: Path) -> None:
    """Refuse the file that sets what has been taken for options of a plugin that there is not."""
    key, said = _package(file, group), _content(file, group)
    for name in sorted(unknown):
        listed = key == group and isinstance(said, Mapping) and name in said
        if listed or key == f"{group}.{name}":
            remedy = (
                f"{file} sets {group}.{name}, and there is no plugin {name}; options stand below "
                "the name of their plugin: 'NAME: {OPTION: VALUE}'"
            )
            raise ConfigError(group, file.stem, remedy)


def _package(file: Path, group: str) -> str:
    """Return the key at which Hydra enters a file of a group; empty: at the root."""
    header = ConfigSource._get_header_dict(file.read_text(encoding="utf-8"))
    key = str(header["package"] or group.replace("/", "."))
    return "" if key == "_global_" else key


def _names(registry: Registry, kind: str) -> set[str]:
    return {plugin.name for plugin in registry.plugins(kind, variants=True)}
