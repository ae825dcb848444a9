"""From a checked configuration to the tree, and from one configuration to the next.

Queues that disappear from the configuration are drained: running pods stay, nothing new is accepted, and the
queue is removed when it is empty. Properties are inherited from parent to child, and a queue that is created
for an application takes the template of its parent instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bayplan.framework.args import Duration
from bayplan.queues.amounts import Amounts, fits, is_positive, lowest
from bayplan.queues.tree import (
    DEFAULT_BACKOFF_DELAY,
    DEFAULT_PREEMPTION_DELAY,
    MAX_PRIORITY,
    MIN_PRIORITY,
    Order,
    Policy,
    Preemption,
    Queue,
    State,
    limits_changed,
    recount_priorities,
    remove_queue,
)
from bayplan.queues.users import Limit, QueueLimits, UserLimits
from bayplan.queues.yunikorn.checks import INVALID_QUEUE_NAME, QUEUE_NAME
from bayplan.queues.yunikorn.config import (
    ROOT,
    PartitionConfig,
    QueueConfig,
    QueueConfigError,
    TemplateConfig,
    go_map,
    parse_amounts,
)
from bayplan.queues.yunikorn.placement import (
    RECOVERY_QUEUE,
    PlacementError,
    Rule,
    Submission,
    build_rules,
    place,
)

_ACL_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_.@-]*[$]?")
_ACL_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_-]*")
_NOT_CREATED: Final = "configured queue creation failed: \n"
_NO_ROOT: Final = "partition cannot be created without root queue"


class Acl:
    """Who may submit to a queue: users, then groups."""

    def __init__(self, text: str = "") -> None:
        self.users: frozenset[str] = frozenset()
        self.groups: frozenset[str] = frozenset()
        self.allows_all = text.strip() == "*"
        if not text:
            return
        parts = text.split(" ")
        if len(parts) > 2:
            raise QueueConfigError(f"multiple spaces found in ACL: '{text}'")
        users = parts[0].split(",")
        groups = parts[1].split(",") if len(parts) == 2 else []
        if users == ["*"] or groups == ["*"]:
            self.allows_all = True
        self.users = frozenset(name for name in users if _ACL_USER.fullmatch(name))
        self.groups = frozenset(name for name in groups if _ACL_GROUP.fullmatch(name))

    def admits(self, user: str, groups: Sequence[str]) -> bool:
        return self.allows_all or user in self.users or not self.groups.isdisjoint(groups)


@dataclass(slots=True)
class Template:
    """What queues get that are created below a parent."""

    max_groups: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    guaranteed: Amounts | None = None
    ceiling: Amounts | None = None


@dataclass(slots=True)
class Settings:
    """The settings of a queue that only this dialect has."""

    properties: dict[str, str] = field(default_factory=dict)
    submit: Acl = field(default_factory=Acl)
    admin: Acl = field(default_factory=Acl)
    template: Template | None = None


class Partition:
    """The tree of one partition with its rules and limits.

    Args:
        fair_gangs: whether applications with task groups may be in queues that sort by share. YuniKorn
            rejects them, because its placeholders do not count for the share of an application.

    Raises:
        QueueConfigError: the partition cannot be created although the configuration passes all checks.
    """

    def __init__(self, config: PartitionConfig, *, fair_gangs: bool = False) -> None:
        self._fair_gangs = fair_gangs
        self.name = config.name
        self.root = Queue(ROOT, leaf=False)
        self.settings: dict[str, Settings] = {}
        self.user_limits = UserLimits()
        root = _root_of(config)
        self.root.max_groups = root.max_applications
        self._apply(self.root, root)
        self._apply_children(self.root, root.queues)
        self.rules: list[Rule] | None
        self.rules_error = ""
        try:
            self.rules = build_rules(config.placement_rules)
        except QueueConfigError as error:
            self.rules, self.rules_error = None, error.problem
        self._apply_partition(config, root)

    def with_config(self, config: PartitionConfig) -> Partition:
        """A new partition of the same dialect.

        Raises:
            QueueConfigError: as for `reload`.
        """
        build_rules(config.placement_rules)
        return Partition(config, fair_gangs=self._fair_gangs)

    def reload(self, config: PartitionConfig) -> None:
        """Applies a new configuration to the queues as they are.

        Raises:
            QueueConfigError: the rules or a queue cannot be built.
        """
        root = _root_of(config)
        self.rules, self.rules_error = build_rules(config.placement_rules), ""
        self._apply(self.root, root)
        self._apply_children(self.root, root.queues)
        self._apply_partition(config, root)
        recount_priorities(self.root)
        limits_changed(self.root)

    def _apply_partition(self, config: PartitionConfig, root: QueueConfig) -> None:
        self.preempts = config.preemption is not False
        self.enforces_quota = config.quota_preemption is True
        self.node_sort = config.node_sort or "fair"
        self.node_weights: Mapping[str, float] = config.node_weights or {"vcore": 1.0, "memory": 1.0}
        self.user_limits.replace(dict(_limits(root, ROOT)))

    def _apply(self, queue: Queue, config: QueueConfig) -> None:
        path = queue.path
        try:
            settings = Settings(dict(config.properties), Acl(config.submit_acl), Acl(config.admin_acl))
            queue.is_managed = True
            queue.state = State.ACTIVE
            queue.is_leaf = not config.parent and not config.queues
            if not queue.is_leaf:
                settings.template = _template(config.template) or self._template_above(queue)
            # As YuniKorn, which takes every queue of that name for the root here.
            if queue.name != ROOT:
                queue.ceiling = _limit(parse_amounts(config.max))
                queue.guaranteed = _limit(parse_amounts(config.guaranteed))
            if queue.parent is not None:
                queue.max_groups = config.max_applications
        except QueueConfigError as error:
            raise QueueConfigError(_NOT_CREATED + error.problem) from error
        if queue.parent is not None:
            above = self.settings[queue.parent.path].properties
            settings.properties = {**_inherited(above), **settings.properties}
        self.settings[path] = settings
        is_recovery = path == RECOVERY_QUEUE
        queue.policy = Policy() if is_recovery else policy_of(settings.properties, leaf=queue.is_leaf)

    def _template_above(self, queue: Queue) -> Template | None:
        return None if queue.parent is None else self.settings[queue.parent.path].template

    def _apply_children(self, parent: Queue, configs: Sequence[QueueConfig]) -> None:
        named = set()
        for config in configs:
            name = config.name.lower()
            child = parent.children.get(name)
            if child is None:
                if parent.state is State.DRAINING:
                    problem = f"cannot add a child queue when queue is marked for deletion: {parent.path}"
                    raise QueueConfigError(_NOT_CREATED + problem)
                child = Queue(name, parent)
            self._apply(child, config)
            self._apply_children(child, config.queues)
            named.add(name)
        for name, child in parent.children.items():
            if name not in named:
                _drain(child)

    def find(self, path: str) -> Queue | None:
        return self.root.find(path)

    def may_submit(self, queue: Queue, user: str, groups: Sequence[str]) -> bool:
        """Whether the queue or one of its ancestors admits the user."""
        if queue.path == RECOVERY_QUEUE:
            return False
        return any(
            settings.submit.admits(user, groups) or settings.admin.admits(user, groups)
            for each in queue.upwards()
            if (settings := self.settings.get(each.path)) is not None
        )

    def queue_for(self, app: Submission, placeholders: Amounts | None = None) -> Queue:
        """The leaf of a new application, created if necessary.

        Args:
            placeholders: what its task groups ask for together.

        Raises:
            PlacementError: with YuniKorn's text.
        """
        try:
            path = place(app, self.rules, self.find, self.may_submit)
        except PlacementError as error:
            problem = f"failed to place application {app.name}: {error}"
            raise PlacementError(problem, error.causes) from error
        queue = self.find(path)
        if queue is None:
            try:
                queue = self._create(path, app)
            except PlacementError as error:
                what = "recovery" if path == RECOVERY_QUEUE else "rule based"
                problem = f"failed to create {what} queue {path} for application {app.name}\n{error}"
                raise PlacementError(problem) from error
        if not queue.is_leaf:
            raise PlacementError(f"failed to find queue {path} for application {app.name}")
        if not queue.is_managed and path != RECOVERY_QUEUE:
            _apply_tags(queue, app)
        if placeholders and any(placeholders.values()):
            if queue.policy.order is not Order.FIFO and not self._fair_gangs:
                raise PlacementError(
                    f"queue {path} cannot run application {app.name} "
                    "with task group request: unsupported sort type"
                )
            ceiling = max_of_path_below_root(queue)
            if ceiling is not None and not fits(ceiling, placeholders):
                raise PlacementError(
                    f"queue {path} cannot fit application {app.name}: task group request "
                    f"{go_map(placeholders)} larger than max queue allocation {go_map(ceiling)}"
                )
        return queue

    def _create(self, path: str, app: Submission) -> Queue:
        if path == RECOVERY_QUEUE:
            return self._create_below(self.root, path.rpartition(".")[2], leaf=True)
        missing: list[str] = []
        known, queue = path, self.find(path)
        while queue is None:
            known, _, name = known.rpartition(".")
            missing.insert(0, name)
            queue = self.find(known)
        if not self.may_submit(queue, app.user, app.groups):
            raise PlacementError(f"submit access to queue {known} denied during create of: {path}")
        if queue.is_leaf:
            raise PlacementError(f"creation of queue {path} failed parent is already a leaf: {known}")
        for number, name in enumerate(missing, 1):
            if not QUEUE_NAME.fullmatch(name):
                raise PlacementError(INVALID_QUEUE_NAME)
            if queue.state is State.DRAINING:
                raise PlacementError(
                    "dynamic queue creation failed: \n"
                    f"cannot add a child queue when queue is marked for deletion: {queue.path}"
                )
            queue = self._create_below(queue, name, leaf=number == len(missing))
        return queue

    def _create_below(self, parent: Queue, name: str, *, leaf: bool) -> Queue:
        queue = Queue(name.lower(), parent, leaf=leaf)
        queue.is_managed = False
        above = self.settings[parent.path].template
        settings = self.settings[queue.path] = Settings()
        if above is not None and leaf:
            if queue.path != RECOVERY_QUEUE:
                settings.properties = dict(above.properties)
            queue.ceiling, queue.guaranteed = above.ceiling, above.guaranteed
            queue.max_groups = above.max_groups
        elif not leaf:
            settings.template = above
        queue.policy = policy_of(settings.properties, leaf=leaf)
        return queue

    def clean(self) -> None:
        """Removes empty queues that are drained or were created for applications."""
        self._clean(self.root)

    def _clean(self, queue: Queue) -> None:
        for child in list(queue.children.values()):
            self._clean(child)
        self.remove_if_empty(queue)

    def remove_if_empty(self, queue: Queue) -> bool:
        """Removes a queue that is drained or was created for applications, if it is empty."""
        is_temporary = queue.state is State.DRAINING or not queue.is_managed
        if not is_temporary or queue.children or queue.groups or self.settings.get(queue.path) is None:
            return False
        remove_queue(queue)
        del self.settings[queue.path]
        return True


def max_of_path_below_root(queue: Queue) -> dict[str, int] | None:
    """The ceiling that holds for a queue whatever the size of the cluster."""
    result: dict[str, int] | None = None
    for each in queue.upwards():
        if each.parent is not None:
            result = lowest(each.ceiling, result)
    return result


def _root_of(config: PartitionConfig) -> QueueConfig:
    if not config.queues or config.queues[0].name != ROOT:
        raise QueueConfigError(_NO_ROOT)
    return config.queues[0]


def _drain(queue: Queue) -> None:
    if not queue.is_managed:
        return
    queue.state = State.DRAINING
    for child in queue.children.values():
        _drain(child)


def _limit(amounts: dict[str, int]) -> dict[str, int] | None:
    """Amounts that are all zero are no limit; a zero beside another amount is one."""
    return amounts if is_positive(amounts) else None


def _template(config: TemplateConfig) -> Template | None:
    if not config.max_applications and not any(
        name and value
        for mapping in (config.properties, config.max or {}, config.guaranteed or {})
        for name, value in mapping.items()
    ):
        return None
    ceiling, guaranteed = parse_amounts(config.max), parse_amounts(config.guaranteed)
    properties = {name: value for name, value in config.properties.items() if name and value}
    return Template(config.max_applications, properties, _limit(guaranteed), _limit(ceiling))


def _apply_tags(queue: Queue, app: Submission) -> None:
    """Quotas in annotations of the namespace set those of a queue that was created for it."""
    guaranteed = _tag_amounts(app.tag("namespace.resourceguaranteed"))
    ceiling = _tag_amounts(app.tag("namespace.resourcequota"))
    count = app.tag("namespace.resourcemaxapps")
    if re.fullmatch(r"\+?[0-9]+", count) and int(count):
        queue.max_groups = int(count)
    if guaranteed is not None or ceiling is not None:
        queue.ceiling, queue.guaranteed = ceiling, guaranteed
        limits_changed(queue)


def _tag_amounts(text: str) -> dict[str, int] | None:
    """Amounts as the shim passes them: JSON of its message type, in base units."""
    if not text:
        return None
    try:
        raw = json.loads(text)
        amounts = {kind: int(value.get("value", 0)) for kind, value in raw["resources"].items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    return _limit(amounts)


def _limits(config: QueueConfig, path: str) -> list[tuple[str, QueueLimits]]:
    users: dict[str, Limit] = {}
    groups: dict[str, Limit] = {}
    for each in config.limits:
        limit = Limit(parse_amounts(each.max_resources), each.max_applications)
        users.update(dict.fromkeys(filter(None, each.users), limit))
        groups.update(dict.fromkeys(filter(None, each.groups), limit))
    found = [(path, QueueLimits(users, groups))] if users or groups else []
    for child in config.queues:
        found.extend(_limits(child, f"{path}.{child.name.lower()}"))
    return found


# Properties


def _inherited(properties: Mapping[str, str]) -> dict[str, str]:
    """What children get: some values are passed on as the default."""
    result = dict(properties)
    if "priority.policy" in result:
        result["priority.policy"] = "default"
    if "priority.offset" in result:
        result["priority.offset"] = "0"
    if result.get("preemption.policy", "disabled").lower() != "disabled":
        result["preemption.policy"] = "default"
    return result


def policy_of(properties: Mapping[str, str], *, leaf: bool) -> Policy:
    """The policy of a queue; an invalid value is ignored, and the default holds."""
    policy = Policy()
    if not leaf or properties.get("application.sort.policy") == "fair":
        policy.order = Order.FAIR
    policy.by_priority = properties.get("application.sort.priority", "").lower() != "disabled"
    offset = properties.get("priority.offset", "")
    if re.fullmatch(r"[+-]?[0-9]+", offset) and MIN_PRIORITY <= int(offset) <= MAX_PRIORITY:
        policy.priority_offset = int(offset)
    policy.priority_fence = properties.get("priority.policy", "").lower() == "fence"
    preemption = properties.get("preemption.policy", "").lower()
    if preemption in ("fence", "disabled"):
        policy.preemption = Preemption(preemption)
    if leaf:
        policy.preemption_delay = _delay(properties.get("preemption.delay"), DEFAULT_PREEMPTION_DELAY)
    policy.quota_delay = _delay(properties.get("quota.preemption.delay"), 0.0)
    count = properties.get("application.unschedasks.backoff", "")
    if re.fullmatch(r"[0-9]+", count):
        policy.backoff_after = int(count)
    policy.backoff_delay = _delay(
        properties.get("application.unschedasks.backoff.delay"), DEFAULT_BACKOFF_DELAY
    )
    return policy


def _delay(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        duration = Duration.parse(text)
    except ValueError:
        return default
    return duration.seconds if duration.nanoseconds > 0 else default
