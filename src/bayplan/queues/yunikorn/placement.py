"""From an application to its queue: the placement rules.

Rules are tried in order; the first that yields a queue that exists or can be created, and that the user may
submit to, is used. A rule may have a parent rule that yields the queue above. `recovery` is always the last
rule: it takes applications whose pods run already, so that a restart never rejects a running pod.

https://yunikorn.apache.org/docs/user_guide/placement_rules
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bayplan.errors import BayplanError
from bayplan.queues.tree import Queue, State
from bayplan.queues.yunikorn.checks import GROUP_NAME, INVALID_QUEUE_NAME, QUEUE_NAME, SPECIAL, USER_NAME
from bayplan.queues.yunikorn.config import ROOT, FilterConfig, QueueConfigError, RuleConfig

RECOVERY_QUEUE: Final = "root.@recovery@"
DEFAULT_QUEUE: Final = "root.default"
CREATE_FORCED: Final = "application.create.force"
NOTHING_MATCHED: Final = "application rejected: no placement rule matched"

Find = Callable[[str], Queue | None]
MaySubmit = Callable[[Queue, str, Sequence[str]], bool]


class PlacementError(BayplanError):
    """An application cannot be placed in any queue.

    Attributes:
        causes: why the rules gave no queue, which YuniKorn's text does not say.
    """

    def __init__(self, problem: str, causes: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.causes = tuple(dict.fromkeys(causes))

    def explained(self) -> str:
        """YuniKorn's text, with the causes."""
        return f"{self} ({'; '.join(self.causes)})" if self.causes else str(self)


@dataclass(frozen=True, slots=True)
class Submission:
    """What placement knows of an application."""

    name: str
    queue: str = ""
    user: str = "nobody"
    groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def tag(self, name: str) -> str:
        """The value of a tag, whatever the case of its name."""
        return next((value for key, value in self.tags.items() if key.lower() == name.lower()), "")

    @property
    def is_forced(self) -> bool:
        return self.tag(CREATE_FORCED).lower() == "true"


class Filter:
    """Whom a rule applies to."""

    def __init__(self, config: FilterConfig) -> None:
        self.allows = config.type != "deny"
        self.users, self.user_expression = _names(config.users, USER_NAME)
        self.groups, self.group_expression = _names(config.groups, GROUP_NAME)
        self.is_empty = not config.users and not config.groups

    def admits(self, user: str, groups: Sequence[str]) -> bool:
        if self.is_empty:
            return self.allows
        named = _matches(user, self.users, self.user_expression) or any(
            _matches(group, self.groups, self.group_expression) for group in groups
        )
        return self.allows if named else not self.allows


def _names(names: Sequence[str], pattern: re.Pattern[str]) -> tuple[frozenset[str], re.Pattern[str] | None]:
    if len(names) == 1 and SPECIAL.search(names[0]):
        return frozenset(), re.compile(names[0])
    return frozenset(name for name in names if pattern.fullmatch(name)), None


def _matches(name: str, names: frozenset[str], expression: re.Pattern[str] | None) -> bool:
    return name in names if expression is None else expression.search(name) is not None


class Rule:
    """One placement rule.

    Raises:
        QueueConfigError: it cannot be built. YuniKorn drops all rules then at start, and rejects a reload.
    """

    def __init__(self, config: RuleConfig) -> None:
        self.kind = kind = config.name.lower()
        if kind == "recovery":
            raise QueueConfigError(
                "recovery rule cannot be part of the config, failing placement rule config"
            )
        if kind not in ("user", "fixed", "provided", "tag", "test"):
            raise QueueConfigError(
                f"unknown rule name specified {config.name}, failing placement rule config"
            )
        self.value = config.value.lower()
        self.create = config.create
        self.filter = Filter(config.filter)
        self.is_qualified = False
        if kind == "tag" and not self.value:
            raise QueueConfigError("a tag queue rule must have a tag name set")
        if kind == "fixed":
            if not self.value:
                raise QueueConfigError("a fixed queue rule must have a queue name set")
            if not all(QUEUE_NAME.fullmatch(part) for part in self.value.split(".")):
                raise QueueConfigError(INVALID_QUEUE_NAME)
            self.is_qualified = self.value.startswith(ROOT)
            if self.is_qualified and config.parent is not None:
                raise QueueConfigError(
                    "cannot have a fixed queue rule with qualified queue getName and a parent rule: "
                    f"{_go_rule(config)}"
                )
        self.parent = None if config.parent is None else Rule(config.parent)

    def place(self, app: Submission, find: Find) -> str:
        """The path of a queue; "" if the rule does not apply.

        Raises:
            PlacementError: it applies, and the result is not valid.
        """
        if self.kind == "test":  # exists for YuniKorn's own tests, and can be configured
            for part in app.queue.split(".") if app.queue else ():
                _check_name(part)
            return app.queue.replace(".", "_dot_") or "test"
        if self.kind == "fixed":
            name = self.value
        elif self.kind == "user":
            name = app.user
        else:
            name = app.queue if self.kind == "provided" else app.tag(self.value)
            if not name:
                return ""
        if not self.filter.admits(app.user, app.groups):
            return ""
        if self.kind in ("provided", "tag") and name.startswith(f"{ROOT}."):
            for part in name.split("."):
                _check_name(part)
            path = name
        elif self.is_qualified:
            path = name
        else:
            if self.kind != "fixed":
                name = name.replace(".", "_dot_")
                _check_name(name)
            above = ROOT
            if self.parent is not None:
                above = self.parent.place(app, find)
                if not above:
                    return ""
                if not above.startswith(f"{ROOT}."):
                    above = f"{ROOT}.{above}"
                queue = find(above)
                if queue is not None and queue.is_leaf:
                    raise PlacementError(f"parent rule returned a leaf queue: {above}")
            path = f"{above}.{name}"
        return path if self.create or find(path) is not None else ""

    def described(self) -> dict[str, object]:
        """The rule as YuniKorn's REST API shows it."""
        parameters = {"create": str(self.create).lower()}
        if self.kind == "fixed":
            parameters |= {"queue": self.value, "qualified": str(self.is_qualified).lower()}
        if self.kind == "tag":
            parameters["tagName"] = self.value
        result: dict[str, object] = {"name": self.kind, "parameters": parameters}
        if self.parent is not None:
            result["parentRule"] = self.parent.described()
        if not self.filter.is_empty:
            result["filter"] = _described_filter(self.filter)
        return result


def _described_filter(chosen: Filter) -> dict[str, object]:
    result: dict[str, object] = {"type": "allow" if chosen.allows else "deny"}
    if chosen.users:
        result["userList"] = sorted(chosen.users)
    if chosen.groups:
        result["groupList"] = sorted(chosen.groups)
    if chosen.user_expression is not None:
        result["userExp"] = chosen.user_expression.pattern
    if chosen.group_expression is not None:
        result["groupExp"] = chosen.group_expression.pattern
    return result


def _check_name(name: str) -> None:
    if not QUEUE_NAME.fullmatch(name):
        raise PlacementError(INVALID_QUEUE_NAME)


def _go_rule(config: RuleConfig) -> str:
    """A rule as Go prints its struct; the address of its parent is left out."""
    chosen = config.filter
    names = f"[{' '.join(chosen.users)}] [{' '.join(chosen.groups)}]"
    return f"{{{config.name} {str(config.create).lower()} {{{chosen.type} {names}}} … {config.value}}}"


def build_rules(configs: Sequence[RuleConfig]) -> list[Rule]:
    """
    Raises:
        QueueConfigError: one of them cannot be built.
    """
    return [Rule(config) for config in configs or (RuleConfig(name="provided"),)]


def place(app: Submission, rules: Sequence[Rule] | None, find: Find, may_submit: MaySubmit) -> str:
    """The path of the queue of an application, which may have to be created.

    Args:
        rules: None if they could not be built: every application is rejected.

    Raises:
        PlacementError: with YuniKorn's text.
    """
    if rules is None:
        raise PlacementError(NOTHING_MATCHED)
    causes: list[str] = []
    for rule in rules:
        path = rule.place(app, find)
        if not path and rule.kind == "provided" and app.queue:
            causes.append(f"queue {app.queue} does not exist")
        if path:
            cause = _why_not(path, app, find, may_submit)
            if not cause:
                return path
            causes.append(cause)
    if app.is_forced:
        return RECOVERY_QUEUE
    if find(DEFAULT_QUEUE) is not None:
        cause = _why_not(DEFAULT_QUEUE, app, find, may_submit)
        if not cause:
            return DEFAULT_QUEUE
        causes.append(cause)
    raise PlacementError(NOTHING_MATCHED, causes or ["no rule applies" if app.queue else "it names no queue"])


def _why_not(path: str, app: Submission, find: Find, may_submit: MaySubmit) -> str:
    """Why the queue that a rule gives cannot be used; "" if it can."""
    queue, wanted = find(path), path
    while queue is None:
        if "." not in path:  # not below root, which only the rule for tests yields
            return f"queue {wanted} is not below {ROOT}"
        path = path.rpartition(".")[0]
        queue = find(path)
    if not may_submit(queue, app.user, app.groups):
        return f"user {app.user} may not submit to queue {path}"
    if path == wanted and not queue.is_leaf:
        return f"queue {path} has queues below it"
    if path == wanted and queue.state is State.DRAINING:
        return f"queue {path} is no longer configured"
    return ""
