"""queues.yaml as values: strictly decoded, with the texts of YuniKorn's errors.

YuniKorn decodes with Go's yaml.v3: field names are in lower case, an unknown field is an error, any scalar is
accepted where a text is expected, and a null leaves the default. Texts of syntax errors are those of our YAML
library, because they come from the library there, too.

Only the first document is read, and an empty one is a valid configuration without partitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from bayplan.api.yaml_reader import MAX_VALUES, LocatedReader, Value, resolve_plain
from bayplan.errors import DecodeError, InputError
from bayplan.queues.amounts import Amounts

MAX_INT64: Final = (1 << 63) - 1
VCORE: Final = "vcore"
ROOT: Final = "root"
DEFAULT_PARTITION: Final = "default"

DEFAULT_CONFIG: Final = """
partitions:
  - name: default
    placementrules:
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: '*'
"""
"""What holds if a ConfigMap has no queues.yaml: a queue for each namespace."""


class QueueConfigError(InputError):
    """A queues.yaml is invalid; the problem is the text that YuniKorn would log."""


@dataclass(slots=True)
class LimitConfig:
    limit: str = ""
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    max_resources: dict[str, str] | None = None
    max_applications: int = 0


@dataclass(slots=True)
class TemplateConfig:
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    guaranteed: dict[str, str] | None = None
    max: dict[str, str] | None = None


@dataclass(slots=True)
class QueueConfig:
    name: str = ""
    parent: bool = False
    guaranteed: dict[str, str] | None = None
    max: dict[str, str] | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    admin_acl: str = ""
    submit_acl: str = ""
    template: TemplateConfig = field(default_factory=TemplateConfig)
    queues: list[QueueConfig] = field(default_factory=list)
    limits: list[LimitConfig] = field(default_factory=list)


@dataclass(slots=True)
class FilterConfig:
    type: str = ""
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RuleConfig:
    name: str = ""
    create: bool = False
    filter: FilterConfig = field(default_factory=FilterConfig)
    parent: RuleConfig | None = None
    value: str = ""


@dataclass(slots=True)
class PartitionConfig:
    name: str = ""
    queues: list[QueueConfig] | None = None
    placement_rules: list[RuleConfig] = field(default_factory=list)
    limits: list[LimitConfig] = field(default_factory=list)
    preemption: bool | None = None
    quota_preemption: bool | None = None
    node_sort: str = ""
    node_weights: dict[str, float] = field(default_factory=dict)
    resolver: str = ""


@dataclass(slots=True)
class SchedulerConfig:
    partitions: list[PartitionConfig] = field(default_factory=list)


# Quantities

_QUANTITY: Final = re.compile(r"([0-9]+)[ \t\n\f\r]*([mkKMGTPE]i?)?")
_SCALES: Final[Mapping[str, int]] = {
    "": 1,
    "m": 1,
    **{suffix: 1000**power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": 1024**power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse_quantity(text: str, *, milli: bool = False) -> int:
    """A quantity of the configuration: digits and a suffix; millicores for a vcore.

    Raises:
        QueueConfigError: it is not a quantity.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise QueueConfigError("invalid quantity")
    number, suffix = int(match[1]), match[2] or ""
    if number > MAX_INT64:
        raise QueueConfigError("invalid quantity: overflow")
    if suffix not in _SCALES or (suffix == "m" and not milli):
        raise QueueConfigError("invalid suffix")
    number *= _SCALES[suffix] * (1000 if milli and suffix != "m" else 1)
    if number > MAX_INT64:
        raise QueueConfigError("invalid quantity: overflow")
    return number


def parse_amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """
    Raises:
        QueueConfigError: one is not a quantity.
    """
    return {kind: parse_quantity(text, milli=kind == VCORE) for kind, text in (texts or {}).items()}


def go_map(amounts: Amounts | Mapping[str, str] | None) -> str:
    """Amounts as Go prints a map."""
    if amounts is None:
        return "nil resource"
    return f"map[{' '.join(f'{kind}:{amounts[kind]}' for kind in sorted(amounts))}]"


# Decoding


class _Word(str):
    """A scalar as it is written."""

    __slots__ = ("is_plain",)
    is_plain: bool


class _Reader(LocatedReader):
    """Keeps scalars as they are written, because 010 is a text where a text is expected."""

    def _scalar(self, event: Any, line: int) -> str:
        word = _Word(event.value)
        word.is_plain = bool(event.implicit[0])
        return word


def _is_null(word: str) -> bool:
    return isinstance(word, _Word) and word.is_plain and word in ("", "~", "null", "Null", "NULL")


class _Decoder:
    """Decodes values into fields; collects errors as yaml.v3 does."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def fields(self, value: Value, go_type: str, setters: Mapping[str, Callable[[Value], None]]) -> None:
        content = value.content
        if not isinstance(content, dict):
            if not (isinstance(content, str) and _is_null(content)):
                self._mismatch(value, go_type)
            return
        for name, part in content.items():
            setter = setters.get(name)
            if setter is None:
                self.errors.append(f"line {part.line}: field {name} not found in type {go_type}")
            else:
                setter(part)

    def text(self, value: Value) -> str:
        content = value.content
        if not isinstance(content, str):
            self._mismatch(value, "string")
            return ""
        return "" if _is_null(content) else str(content)

    def flag(self, value: Value) -> bool | None:
        content = value.content
        if isinstance(content, str):
            if _is_null(content):
                return None
            resolved = resolve_plain(content)
            if isinstance(resolved, bool):
                return resolved
        self._mismatch(value, "bool")
        return None

    def count(self, value: Value) -> int:
        content = value.content
        if isinstance(content, str):
            if _is_null(content):
                return 0
            resolved = resolve_plain(content)
            if isinstance(resolved, int | float) and not isinstance(resolved, bool) and resolved >= 0:
                return int(resolved)
        self._mismatch(value, "uint64")
        return 0

    def number(self, value: Value) -> float:
        content = value.content
        if isinstance(content, str):
            if _is_null(content):
                return 0.0
            resolved = resolve_plain(content)
            if isinstance(resolved, int | float) and not isinstance(resolved, bool):
                return float(resolved)
        self._mismatch(value, "float64")
        return 0.0

    def items(self, value: Value, go_type: str) -> list[Value]:
        content = value.content
        if isinstance(content, list):
            return content
        if not (isinstance(content, str) and _is_null(content)):
            self._mismatch(value, f"[]{go_type}")
        return []

    def texts(self, value: Value) -> list[str]:
        return [self.text(part) for part in self.items(value, "string")]

    def mapping(self, value: Value) -> dict[str, str] | None:
        content = value.content
        if isinstance(content, dict):
            return {str(name): self.text(part) for name, part in content.items()}
        if not (isinstance(content, str) and _is_null(content)):
            self._mismatch(value, "map[string]string")
        return None

    def _mismatch(self, value: Value, go_type: str) -> None:
        content = value.content
        if isinstance(content, dict | list):
            what = "!!map" if isinstance(content, dict) else "!!seq"
        else:
            text = str(content)
            kind = "str"
            if isinstance(content, _Word) and content.is_plain:
                kind = {bool: "bool", int: "int", float: "float"}.get(type(resolve_plain(text)), "str")
            short = text if len(text) <= 10 else text[:7] + "..."
            what = f"!!{kind} `{short}`"
        self.errors.append(f"line {value.line}: cannot unmarshal {what} into {go_type}")

    # The types of the configuration

    def scheduler(self, value: Value) -> SchedulerConfig:
        config = SchedulerConfig()

        def partitions(part: Value) -> None:
            config.partitions = [self.partition(each) for each in self.items(part, "configs.PartitionConfig")]

        self.fields(
            value, "configs.SchedulerConfig", {"partitions": partitions, "checksum": lambda part: None}
        )
        return config

    def partition(self, value: Value) -> PartitionConfig:
        config = PartitionConfig()

        def set_(name: str, read: Callable[[Value], Any]) -> Callable[[Value], None]:
            return lambda part: setattr(config, name, read(part))

        def queues(part: Value) -> None:
            is_list = isinstance(part.content, list)
            read = [self.queue(each) for each in self.items(part, "configs.QueueConfig")]
            config.queues = read if is_list else None

        def preemption(part: Value) -> None:
            self.fields(
                part,
                "configs.PartitionPreemptionConfig",
                {
                    "enabled": set_("preemption", self.flag),
                    "quotapreemptionenabled": set_("quota_preemption", self.flag),
                },
            )

        def weights(part: Value) -> dict[str, float]:
            content = part.content
            if isinstance(content, dict):
                return {str(name): self.number(each) for name, each in content.items()}
            if not (isinstance(content, str) and _is_null(content)):
                self._mismatch(part, "map[string]float64")
            return {}

        def node_sort(part: Value) -> None:
            self.fields(
                part,
                "configs.NodeSortingPolicy",
                {"type": set_("node_sort", self.text), "resourceweights": set_("node_weights", weights)},
            )

        def resolver(part: Value) -> None:
            self.fields(part, "configs.UserGroupResolver", {"type": set_("resolver", self.text)})

        self.fields(
            value,
            "configs.PartitionConfig",
            {
                "name": set_("name", self.text),
                "queues": queues,
                "placementrules": set_("placement_rules", self.rules),
                "limits": set_("limits", self.limits),
                "preemption": preemption,
                "nodesortpolicy": node_sort,
                "usergroupresolver": resolver,
            },
        )
        return config

    def rules(self, value: Value) -> list[RuleConfig]:
        return [self.rule(each) for each in self.items(value, "configs.PlacementRule")]

    def rule(self, value: Value) -> RuleConfig:
        config = RuleConfig()

        def parent(part: Value) -> None:
            if not (isinstance(part.content, str) and _is_null(part.content)):
                config.parent = self.rule(part)

        def filter_(part: Value) -> None:
            self.fields(
                part,
                "configs.Filter",
                {
                    "type": lambda each: setattr(config.filter, "type", self.text(each)),
                    "users": lambda each: setattr(config.filter, "users", self.texts(each)),
                    "groups": lambda each: setattr(config.filter, "groups", self.texts(each)),
                },
            )

        self.fields(
            value,
            "configs.PlacementRule",
            {
                "name": lambda part: setattr(config, "name", self.text(part)),
                "create": lambda part: setattr(config, "create", bool(self.flag(part))),
                "filter": filter_,
                "parent": parent,
                "value": lambda part: setattr(config, "value", self.text(part)),
            },
        )
        return config

    def limits(self, value: Value) -> list[LimitConfig]:
        return [self.limit(each) for each in self.items(value, "configs.Limit")]

    def limit(self, value: Value) -> LimitConfig:
        config = LimitConfig()
        self.fields(
            value,
            "configs.Limit",
            {
                "limit": lambda part: setattr(config, "limit", self.text(part)),
                "users": lambda part: setattr(config, "users", self.texts(part)),
                "groups": lambda part: setattr(config, "groups", self.texts(part)),
                "maxresources": lambda part: setattr(config, "max_resources", self.mapping(part)),
                "maxapplications": lambda part: setattr(config, "max_applications", self.count(part)),
            },
        )
        return config

    def resources(self, config: QueueConfig | TemplateConfig) -> Callable[[Value], None]:
        return lambda value: self.fields(
            value,
            "configs.Resources",
            {
                "guaranteed": lambda part: setattr(config, "guaranteed", self.mapping(part)),
                "max": lambda part: setattr(config, "max", self.mapping(part)),
            },
        )

    def queue(self, value: Value) -> QueueConfig:
        config = QueueConfig()

        def template(part: Value) -> None:
            self.fields(
                part,
                "configs.ChildTemplate",
                {
                    "maxapplications": lambda each: setattr(
                        config.template, "max_applications", self.count(each)
                    ),
                    "properties": lambda each: setattr(
                        config.template, "properties", self.mapping(each) or {}
                    ),
                    "resources": self.resources(config.template),
                },
            )

        def queues(part: Value) -> None:
            config.queues = [self.queue(each) for each in self.items(part, "configs.QueueConfig")]

        self.fields(
            value,
            "configs.QueueConfig",
            {
                "name": lambda part: setattr(config, "name", self.text(part)),
                "parent": lambda part: setattr(config, "parent", bool(self.flag(part))),
                "resources": self.resources(config),
                "maxapplications": lambda part: setattr(config, "max_applications", self.count(part)),
                "properties": lambda part: setattr(config, "properties", self.mapping(part) or {}),
                "adminacl": lambda part: setattr(config, "admin_acl", self.text(part)),
                "submitacl": lambda part: setattr(config, "submit_acl", self.text(part)),
                "childtemplate": template,
                "queues": queues,
                "limits": lambda part: setattr(config, "limits", self.limits(part)),
            },
        )
        return config


def decode(text: str) -> SchedulerConfig:
    """The configuration as it is written, not checked.

    Raises:
        QueueConfigError: it is not YAML, or has unknown fields or values of a wrong type.
    """
    try:
        document = next(_Reader(text, max_values=max(len(text), MAX_VALUES)).documents(), None)
    except DecodeError as error:
        problem = error.problem if error.line is None else f"line {error.line}: {error.problem}"
        raise QueueConfigError(f"yaml: {problem}", line=error.line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise QueueConfigError(f"yaml: line {line}: {error.problem}", line=line) from error
    except yaml.reader.ReaderError as error:
        raise QueueConfigError(f"yaml: {error.reason}") from error
    if document is None or document.value is None:
        return SchedulerConfig()
    decoder = _Decoder()
    config = decoder.scheduler(document.value)
    if decoder.errors:
        raise QueueConfigError("yaml: unmarshal errors:\n  " + "\n  ".join(decoder.errors))
    return config
