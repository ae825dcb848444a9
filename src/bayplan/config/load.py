"""Reads a configuration: file or text in, complete configuration out.

Invalid YAML, unknown fields and wrong types are a `DecodeError` with file, line and field. Values are not
validated here: flags may still change the configuration before `build_profiles` does that.

bayplan's own settings are a document of their own, `kind: BayplanConfiguration`, because kube-scheduler's
configuration has no place for them. It follows the KubeSchedulerConfiguration in the same file (kube-
scheduler reads only the first document, so the file works for both), or is in a file of its own. Flags have
precedence over both (`OwnFlags`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bayplan.api.documents import read_file, read_stream
from bayplan.api.meta import OWN_API_VERSION
from bayplan.api.releases import DEFAULT_RELEASE, Release
from bayplan.api.yaml_reader import Value
from bayplan.config.catalog import PluginCatalog, default_catalog
from bayplan.config.decoding import Decoder, parse_documents
from bayplan.config.defaults import (
    FileConfiguration,
    FilePluginConfig,
    FileProfile,
    complete,
    default_arguments,
)
from bayplan.config.model import (
    API_VERSION,
    BAYPLAN_KIND,
    KIND,
    BayplanConfiguration,
    KubeSchedulerConfiguration,
    PluginConfig,
)
from bayplan.errors import ConfigError, DecodeError, InputError
from bayplan.framework.args import Duration, Gates, PluginArgs, at
from bayplan.framework.builtin_args import BUILTIN_ARGS
from bayplan.framework.points import Point, TieBreak

_TYPE_KEYS: Final = ("apiVersion", "kind")
_TYPES: Final = (OWN_API_VERSION, BAYPLAN_KIND)
STDIN: Final = "-"


def load_config(
    path: str | Path, catalog: PluginCatalog | None = None, release: Release = DEFAULT_RELEASE
) -> KubeSchedulerConfiguration:
    """Reads a file; `-` is standard input.

    `catalog` has the plugins that it may name (None: those of the release), and `release` the defaults.

    Raises:
        InputError: the file cannot be read.
        DecodeError: it is not a configuration.
    """
    return parse_config(read_config_text(path), str(path), catalog, release)


def load_own_settings(path: str | Path) -> BayplanConfiguration:
    """The BayplanConfiguration in a file, which may contain other documents.

    Raises:
        InputError: the file cannot be read.
        DecodeError: it has no valid BayplanConfiguration.
    """
    source = str(path)
    documents = parse_documents(read_config_text(path), source)
    own = [document for document in documents if is_own(document)]
    if not own:
        raise DecodeError(
            f"expected a document with apiVersion {OWN_API_VERSION} and kind {BAYPLAN_KIND}",
            source=source,
        )
    return decode_own(own, source)


def read_config_text(path: str | Path) -> str:
    """The text of a file, for `parse_config`; `-` is standard input.

    Raises:
        InputError: it cannot be read, or it is not UTF-8.
    """
    source = str(path)
    try:
        data = read_stream(sys.stdin.buffer, source) if source == STDIN else read_file(Path(path))
    except OSError as error:
        raise InputError((error.strerror or "cannot be read").lower(), source=source) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DecodeError("this is not UTF-8", source=source, line=line) from None


def parse_config(
    text: str,
    source: str = "",
    catalog: PluginCatalog | None = None,
    release: Release = DEFAULT_RELEASE,
) -> KubeSchedulerConfiguration:
    """Reads a text; errors name it `source`. The rest is as for `load_config`.

    It is a KubeSchedulerConfiguration, a BayplanConfiguration (then the rest is the default), or both. Other
    documents after the first are ignored, as by kube-scheduler.

    Raises:
        DecodeError: the text is not a configuration.
    """
    catalog = default_catalog(release) if catalog is None else catalog
    document, settings = _documents(text, source)
    if document is None:
        return replace(default_config(catalog, release), bayplan=settings)
    _require_kind(document, source)
    decoder = Decoder()
    file = decoder.decode(document, FileConfiguration)
    if not release.has_pod_group_post_filter:
        _refuse_set(document, Point.POD_GROUP_POST_FILTER, decoder)
    decoder.raise_problems(source)
    assert file is not None
    arguments = tuple(
        _decode_arguments(profile, at("profiles", i, "pluginConfig"), decoder, catalog, release.gates)
        for i, profile in enumerate(file.profiles)
    )
    decoder.raise_problems(source)
    return replace(complete(file, arguments, catalog, release), bayplan=settings)


def _refuse_set(document: Value, point: Point, decoder: Decoder) -> None:
    """Reports the plugin sets of an extension point that the release does not have."""
    for i, profile in enumerate(_children(document, "profiles")):
        for key, value in _fields_of(profile, "plugins").items():
            if key == point.config_key:
                decoder.report(value, at("profiles", i, "plugins", key), "unknown field")


def _children(value: Value, key: str) -> list[Value]:
    found = value.content.get(key) if isinstance(value.content, dict) else None
    return found.content if found is not None and isinstance(found.content, list) else []


def _fields_of(value: Value, key: str) -> dict[str, Value]:
    found = value.content.get(key) if isinstance(value.content, dict) else None
    return found.content if found is not None and isinstance(found.content, dict) else {}


def _documents(text: str, source: str) -> tuple[Value | None, BayplanConfiguration]:
    """The KubeSchedulerConfiguration, if there is one, and bayplan's own settings."""
    documents = parse_documents(text, source)
    found = [next(documents, Value(None, 1))]
    if BAYPLAN_KIND in text or OWN_API_VERSION in text:
        found += documents
    own = [document for document in found if is_own(document)]
    others = (document for document in found if not is_own(document))
    return next(others, None), decode_own(own, source)


def default_config(
    catalog: PluginCatalog | None = None, release: Release = DEFAULT_RELEASE
) -> KubeSchedulerConfiguration:
    """The configuration of a scheduler without a configuration file."""
    catalog = default_catalog(release) if catalog is None else catalog
    return complete(FileConfiguration(), (), catalog, release)


def _require_kind(document: Value, source: str) -> None:
    """Rejects documents of another kind or version."""
    if not isinstance(document.content, dict):
        raise DecodeError(
            f"expected a mapping with apiVersion and kind {KIND}", source=source, line=document.line
        )
    for key, expected in zip(_TYPE_KEYS, (API_VERSION, KIND), strict=True):
        value = document.content.get(key)
        if value is None or value.content in (None, ""):
            problem = f"missing; it should be {expected}"
            raise DecodeError(problem, source=source, line=document.line, field=key)
        if value.content != expected:
            problem = f"{value.plain()!r} is not known; it should be {expected}"
            raise DecodeError(problem, source=source, line=value.line, field=key)


def _decode_arguments(
    profile: FileProfile, path: str, decoder: Decoder, catalog: PluginCatalog, gates: Gates
) -> tuple[PluginConfig, ...]:
    decoded: list[PluginConfig] = []
    for i, entry in enumerate(profile.plugin_config):
        args = _decode_entry(entry, at(path, i, "args"), decoder, catalog, gates)
        decoded.append(PluginConfig(entry.name, args))
    return tuple(decoded)


def _decode_entry(
    entry: FilePluginConfig, path: str, decoder: Decoder, catalog: PluginCatalog, gates: Gates
) -> object:
    """The arguments of one entry: typed if the plugin is known to have some, else unchanged."""
    if entry.args is None:
        return default_arguments(entry.name, catalog, gates)
    args_type = catalog.args_type(entry.name)
    if args_type is None:
        return entry.args.plain()
    if entry.name in BUILTIN_ARGS:
        _check_args_kind(entry.args, path, args_type.__name__, decoder)
    args = decoder.decode(entry.args, args_type, path, ignore=_TYPE_KEYS)
    return args.completed(gates) if isinstance(args, PluginArgs) else args


def _check_args_kind(value: Value, path: str, kind: str, decoder: Decoder) -> None:
    if not isinstance(value.content, dict):
        return
    wanted: Sequence[tuple[str, str]] = (("apiVersion", API_VERSION), ("kind", kind))
    for key, expected in wanted:
        given = value.content.get(key)
        if given is not None and given.content not in (None, "", expected):
            decoder.report(
                given, at(path, key), f"{given.plain()!r} is not known here; it should be {expected}"
            )


# bayplan's own settings


def is_own(document: Value) -> bool:
    """Whether the document is meant to be a BayplanConfiguration: either key is enough, to find typing
    errors in the other."""
    if not isinstance(document.content, dict):
        return False
    keys = zip(_TYPE_KEYS, _TYPES, strict=True)
    return any(key in document.content and document.content[key].content == word for key, word in keys)


def decode_own(documents: list[Value], source: str) -> BayplanConfiguration:
    """The settings of these documents, of which there may be at most one; the defaults if there is none.

    Raises:
        DecodeError: there are two, or one is invalid.
    """
    if not documents:
        return BayplanConfiguration()
    if len(documents) > 1:
        raise DecodeError(f"a second {BAYPLAN_KIND}; there may be one", source=source, line=documents[1].line)
    (document,) = documents
    assert isinstance(document.content, dict)
    for key, expected in zip(_TYPE_KEYS, _TYPES, strict=True):
        given = document.content.get(key)
        if given is None or given.content != expected:
            line = document.line if given is None else given.line
            raise DecodeError(f"should be {expected}", source=source, line=line, field=key)
    decoder = Decoder()
    settings = decoder.decode(document, BayplanConfiguration, ignore=_TYPE_KEYS)
    decoder.raise_problems(source)
    assert settings is not None
    return settings


@dataclass(frozen=True, slots=True)
class OwnFlags:
    """Flags for bayplan's own settings; None: not given."""

    file: BayplanConfiguration | None = None
    """`--bayplan-config`: replaces the document in the file of `--config`."""
    tie_break: TieBreak | None = None
    slow_cycle_threshold: Duration | None = None

    def apply(self, config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        """The configuration with these flags.

        Raises:
            ConfigError: a value is not allowed.
        """
        given = {"tie_break": self.tie_break, "slow_cycle_threshold": self.slow_cycle_threshold}
        settings = config.bayplan if self.file is None else self.file
        try:
            settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return replace(config, bayplan=settings)
