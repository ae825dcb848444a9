"""Checks a configuration as YuniKorn does, with its error texts and in its order.

`load` decodes and checks a queues.yaml; the first problem is the result. Checks also complete the
configuration as YuniKorn does: a root queue is inserted where there is none, limits of a partition become
those of its root, and an unnamed partition gets its name.

configvalidator.go of apache/yunikorn-core.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bayplan.queues.amounts import Amounts, fits, is_positive, is_zero, lowest
from bayplan.queues.users import EVERYBODY
from bayplan.queues.yunikorn.config import (
    DEFAULT_PARTITION,
    MAX_INT64,
    ROOT,
    LimitConfig,
    PartitionConfig,
    QueueConfig,
    QueueConfigError,
    RuleConfig,
    SchedulerConfig,
    decode,
    go_map,
    parse_amounts,
)

QUEUE_NAME: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
USER_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
GROUP_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*")
RULE_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*")
SPECIAL: Final = re.compile(r"[\^$*+?()\[{}|]")
"""Characters that make a regular expression of a name."""

INVALID_QUEUE_NAME: Final = (
    "invalid queue name, max 64 characters consisting of alphanumeric characters and "
    "'-', '_', '#', '@', '/', ':' allowed"
)


def load(text: str) -> SchedulerConfig:
    """A checked and completed configuration.

    Raises:
        QueueConfigError: with the text of YuniKorn.
    """
    config = decode(text)
    check(config)
    return config


def check(config: SchedulerConfig) -> None:
    """
    Raises:
        QueueConfigError: the first problem.
    """
    names: set[str] = set()
    for partition in config.partitions:
        if partition.name == "" or partition.name.lower() == DEFAULT_PARTITION:
            partition.name = DEFAULT_PARTITION
        if partition.name.lower() in names:
            raise QueueConfigError(f"duplicate partition name found with name {partition.name}")
        names.add(partition.name.lower())
        root = _root(partition)
        _check_queue(root, 1)
        _check_resources(root, None)
        _check_rules(partition)
        _check_node_sort(partition)
        _check_max_applications(root)
        _check_limit_resources(root, {}, {})
        _check_limit_applications(root, {}, {})


def _root(partition: PartitionConfig) -> QueueConfig:
    if partition.queues is None:
        raise QueueConfigError("queue config is not set")
    if len(partition.queues) == 1 and partition.queues[0].name.lower() == ROOT:
        partition.queues[0].parent = True
    else:
        partition.queues = [QueueConfig(name=ROOT, parent=True, queues=partition.queues)]
    root = partition.queues[0]
    if root.guaranteed is not None or root.max is not None:
        raise QueueConfigError("root queue must not have resource limits set")
    if partition.limits and root.limits and partition.limits != root.limits:
        raise QueueConfigError("partition limits and root queue limits are not equivalent")
    if partition.limits and not root.limits:
        root.limits = partition.limits
    return root


def _check_acl(acl: str) -> None:
    acl = acl.strip()
    if len(acl.split()) > 2:
        raise QueueConfigError(f"multiple spaces found in ACL: '{acl}'")


def _check_queue(queue: QueueConfig, level: int) -> None:
    _check_acl(queue.admin_acl)
    _check_acl(queue.submit_acl)
    _check_limits(queue)
    names: set[str] = set()
    for child in queue.queues:
        if not QUEUE_NAME.fullmatch(child.name):
            raise QueueConfigError(INVALID_QUEUE_NAME)
        if child.name.lower() in names:
            raise QueueConfigError(f"duplicate child name found with name '{child.name}', level {level}")
        names.add(child.name.lower())
    for child in queue.queues:
        _check_queue(child, level + 1)


def _check_limits(queue: QueueConfig) -> None:
    users: set[str] = set()
    groups: set[str] = set()
    for limit in queue.limits:
        _check_limit(limit, users, groups, queue)


def _check_names(
    what: str, names: Sequence[str], known: set[str], pattern: re.Pattern[str], twice: str = ""
) -> None:
    """Checks the users or groups of a limit and adds them to those of earlier limits."""
    for name in names:
        if name != EVERYBODY and not pattern.fullmatch(name):
            raise QueueConfigError(f"invalid limit {what} name '{name}' in limit definition")
        if name in known:
            raise QueueConfigError(f"duplicated {what} name '{name}'{twice}")
        known.add(name)
        if EVERYBODY in known and name != EVERYBODY:
            raise QueueConfigError(f"should not set no wildcard {what} {name} after wildcard {what} limit")


def _check_limit(limit: LimitConfig, users: set[str], groups: set[str], queue: QueueConfig) -> None:
    if not limit.users and not limit.groups:
        shown = f"{{{limit.limit} [] [] {go_map(limit.max_resources or {})} {limit.max_applications}}}"
        raise QueueConfigError(f"empty user and group lists defined in limit '{shown}'")
    _check_names("user", limit.users, users, USER_NAME, ", already exists")
    _check_names("group", limit.groups, groups, GROUP_NAME)
    if groups == {EVERYBODY}:
        raise QueueConfigError(
            "should not specify only one group limit that is using the wildcard. "
            "There must be at least one limit with a group name defined "
        )
    amounts: dict[str, int] = {}
    if limit.max_resources:
        amounts = parse_amounts(limit.max_resources)
        if not is_positive(amounts):
            raise QueueConfigError(f"MaxResources should be greater than zero in '{limit.limit}' limit")
    if not limit.max_applications and not limit.max_resources:
        raise QueueConfigError(
            f"invalid resource combination for limit {limit.limit} all resource limits are null"
        )
    if queue.max_applications and queue.max_applications < limit.max_applications:
        raise QueueConfigError(
            f"invalid MaxApplications settings for limit {limit.limit} "
            "exceed current the queue MaxApplications"
        )
    if queue.name == ROOT:
        return
    try:
        ceiling = parse_amounts(queue.max)
    except QueueConfigError as error:
        problem = f"parse queue {queue.name} max resource failed: {error.problem}"
        raise QueueConfigError(problem) from error
    if not fits(ceiling, amounts):
        raise QueueConfigError(
            f"invalid MaxResources settings for limit {limit.limit} exeecd current the queue MaxResources"
        )


def _check_resources(queue: QueueConfig, above: Amounts | None) -> dict[str, int]:
    """Checks a queue and everything below; returns what is guaranteed in it."""
    guaranteed, ceiling = parse_amounts(queue.guaranteed), parse_amounts(queue.max)
    if not fits(ceiling, guaranteed):
        raise QueueConfigError(
            f"guaranteed resource {go_map(guaranteed)} is larger than "
            f"maximum resource {go_map(ceiling)} for queue {queue.name}"
        )
    if not fits(above, ceiling):
        raise QueueConfigError(
            f"max resource of parent {go_map(above)} is smaller than "
            f"maximum resource {go_map(ceiling)} for queue {queue.name}"
        )
    effective = lowest(ceiling, above)
    children: dict[str, int] = {}
    for child in queue.queues:
        for kind, amount in _check_resources(child, effective).items():
            children[kind] = min(children.get(kind, 0) + amount, MAX_INT64)
    if not fits(guaranteed, children):
        raise QueueConfigError(
            f"guaranteed resource of parent {go_map(guaranteed)} is smaller than "
            f"sum of guaranteed resources {go_map(children)} of the children for queue {queue.name}"
        )
    if not fits(effective, children):
        raise QueueConfigError(
            f"max resource {go_map(effective)} is smaller than "
            f"sum of guaranteed resources {go_map(children)} of the children for queue {queue.name}"
        )
    return children if is_zero(guaranteed) else guaranteed


def _check_rules(partition: PartitionConfig) -> None:
    for rule in partition.placement_rules:
        _check_rule(rule)
    assert partition.queues is not None
    paths = [_static_path(rule) for rule in partition.placement_rules]
    for number, (rule, (path, chain, has_more)) in enumerate(
        zip(partition.placement_rules, paths, strict=True)
    ):
        if not path.startswith(ROOT):
            continue
        where = f"placement rule no. #{number} ({chain}) references"
        problem = _check_path(path.lower().split("."), rule.create, has_more, partition.queues, None)
        if problem == "not a leaf":
            raise QueueConfigError(f"{where} a queue ({path}) which is not a leaf")
        if problem == "missing":
            raise QueueConfigError(f"{where} non-existing queues ({path}) and create is 'false'")
        if problem:
            raise QueueConfigError(
                f"{where} non-existing queues ({path}) which cannot be created "
                f"because the last queue ({problem}) in the hierarchy is a leaf"
            )


def _check_rule(rule: RuleConfig) -> None:
    if not RULE_NAME.fullmatch(rule.name):
        raise QueueConfigError(f"invalid rule name {rule.name}, a name must be a valid identifier")
    if rule.parent is not None:
        _check_rule(rule.parent)
    kind = rule.filter.type
    if kind and kind.lower() not in ("allow", "deny"):
        raise QueueConfigError(
            f"invalid rule filter type {kind}, filter type  must be either '', allow or deny"
        )
    for what, names, pattern in (
        ("user", rule.filter.users, USER_NAME),
        ("group", rule.filter.groups, GROUP_NAME),
    ):
        if len(names) == 1 and not pattern.fullmatch(names[0]) and not is_expression(names[0]):
            raise QueueConfigError(
                f"invalid rule filter {what} list is not a proper list or regexp: [{names[0]}]"
            )


def is_expression(text: str) -> bool:
    """Whether a name in a filter is a valid regular expression rather than a name."""
    if not SPECIAL.search(text):
        return False
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _static_path(rule: RuleConfig) -> tuple[str, str, bool]:
    """The part of the path that does not depend on the application, the chain of rules, and whether more
    follows."""
    chain: list[RuleConfig] = []
    each: RuleConfig | None = rule
    while each is not None:
        chain.insert(0, each)
        each = each.parent
    path, has_more = "", False
    for each in chain:
        if has_more:
            continue
        if each.name != "fixed":
            path = path or "<dynamic>"
            has_more = True
        elif each.value.startswith(ROOT):
            if path:
                raise QueueConfigError(f"illegal fully qualified 'fixed' rule with value {each.value}")
            path = each.value
        else:
            path = f"{path or ROOT}.{each.value}"
    return path, "->".join(each.name for each in chain), has_more


def _check_path(
    names: Sequence[str],
    create: bool,
    has_more: bool,
    queues: Sequence[QueueConfig],
    parent: QueueConfig | None,
) -> str:
    if not queues:
        assert parent is not None
        if not parent.parent:
            return parent.name
        return "" if create else "missing"
    queue = next((each for each in queues if each.name == names[0]), None)
    if queue is None:
        return "" if create else "missing"
    if len(names) == 1:
        return "" if queue.parent == has_more else "not a leaf"
    return _check_path(names[1:], create, has_more, queue.queues, queue)


def _check_node_sort(partition: PartitionConfig) -> None:
    if partition.node_sort not in ("", "fair", "binpacking"):
        raise QueueConfigError(f"undefined policy: {partition.node_sort}")
    for kind, weight in partition.node_weights.items():
        if weight < 0:
            raise QueueConfigError(f"negative resource weight for {kind} is not allowed")


def _check_max_applications(queue: QueueConfig) -> None:
    for child in queue.queues:
        if queue.max_applications and queue.max_applications < child.max_applications:
            raise QueueConfigError("parent maxApplications must be larger than child maxApplications")
        if queue.max_applications and not child.max_applications:
            raise QueueConfigError(
                "maxApplications is either undefined or zero, "
                "which is not allowed when parent queue's maxApplications is defined"
            )
        _check_max_applications(child)


def _check_limit_resources(queue: QueueConfig, users: dict[str, Amounts], groups: dict[str, Amounts]) -> None:
    own_users, own_groups = dict(users), dict(groups)
    for limit in queue.limits:
        amounts = parse_amounts(limit.max_resources)
        for what, names, above, own in (
            ("user", limit.users, users, own_users),
            ("group", limit.groups, groups, own_groups),
        ):
            for name in names:
                start = f"{what} {name} max resource {go_map(amounts)} of queue {queue.name} is greater than"
                known = above.get(name)
                own[name] = amounts
                if known is not None:
                    if not fits(known, amounts):
                        raise QueueConfigError(
                            f"{start} immediate or ancestor parent maximum resource {go_map(known)}"
                        )
                    own[name] = lowest(amounts, known) or {}
                elif name != EVERYBODY and not fits(known := above.get(EVERYBODY), amounts):
                    raise QueueConfigError(
                        f"{start} wildcard maximum resource {go_map(known)} "
                        "of immediate or ancestor parent queue"
                    )
    for child in queue.queues:
        _check_limit_resources(child, own_users, own_groups)


def _check_limit_applications(queue: QueueConfig, users: dict[str, int], groups: dict[str, int]) -> None:
    own_users, own_groups = dict(users), dict(groups)
    for limit in queue.limits:
        count = limit.max_applications
        for what, names, above, own in (
            ("user", limit.users, users, own_users),
            ("group", limit.groups, groups, own_groups),
        ):
            for name in names:
                start = f"{what} {name} max applications {count} of queue {queue.name} is greater than"
                known = above.get(name)
                if known is not None:
                    if known and (known < count or not count):
                        raise QueueConfigError(
                            f"{start} immediate or ancestor parent max applications {known}"
                        )
                elif name != EVERYBODY and (known := above.get(EVERYBODY)) and (known < count or not count):
                    raise QueueConfigError(
                        f"{start} wildcard max applications {known} of immediate or ancestor parent queue"
                    )
                own[name] = count
    for child in queue.queues:
        _check_limit_applications(child, own_users, own_groups)
