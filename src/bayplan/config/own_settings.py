"""bayplan's own settings: a document `kind: BayplanConfiguration`.

They concern what kube-scheduler does not have, so its configuration has no place for them. The document
follows the KubeSchedulerConfiguration in the same file (kube-scheduler reads only the first document, so the
file works for both), or is in a file of its own. Flags have precedence over both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.api.own_version import OWN_API_VERSION
from bayplan.config.decoding import Decoder
from bayplan.config.document import Value
from bayplan.config.model import (
    BAYPLAN_KIND,
    BayplanConfiguration,
    KubeSchedulerConfiguration,
)
from bayplan.errors import ConfigError, DecodeError
from bayplan.framework.plugin_args.duration import Duration
from bayplan.framework.tie_break import TieBreak

_TYPE_KEYS: Final = ("apiVersion", "kind")
_TYPES: Final = (OWN_API_VERSION, BAYPLAN_KIND)


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


def own_wire(settings: BayplanConfiguration) -> dict[str, object] | None:
    """The settings as plain data; None if all have their defaults."""
    if settings == BayplanConfiguration():
        return None
    values: dict[str, object] = msgspec.to_builtins(settings)
    values["slowCycleThreshold"] = str(settings.slow_cycle_threshold)
    return {"apiVersion": OWN_API_VERSION, "kind": BAYPLAN_KIND} | values


@dataclass(frozen=True, slots=True)
class OwnFlags:
    """What the command line says about bayplan's own settings; None: nothing."""

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
