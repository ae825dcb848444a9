"""Escalation: nobody grants permissions that they do not have.

A role may be written by users who have all permissions in it, or the verb `escalate` for roles. A binding may
be written by users who have all permissions of its role, or the verb `bind` for that role. What is written by
controllers and by `bayplan up` itself has no user, and is not checked.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Final

from bayplan.api.meta import Content
from bayplan.embedded.server import statuses
from bayplan.embedded.server.access import MASTERS, RBAC, Action, User, covers
from bayplan.embedded.server.kinds import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    RBAC_GROUP,
    ROLE_BINDINGS,
    ROLES,
    Resource,
)

CURRENT_USER: Final[ContextVar[User | None]] = ContextVar("CURRENT_USER", default=None)
"""The user of the request that is being handled."""

_EVERYTHING: Final = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_NOT_HELD: Final = (
    'user "{user}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{rules}'
)


class Escalation:
    """Checks roles and bindings before they are stored."""

    def __init__(self, rbac: RBAC) -> None:
        self._rbac = rbac

    def check(self, resource: Resource, content: Content, old: Content | None) -> None:
        """Raises StatusError (403) if the user of the request grants what they do not have."""
        user = CURRENT_USER.get()
        if user is None or MASTERS in user.groups:
            return
        meta = content["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        if resource in (ROLES, CLUSTER_ROLES):
            fields = ("rules", "aggregationRule")
            if old is not None and all(content.get(field) == old.get(field) for field in fields):
                return
            if self._rbac.allows(user, Action("escalate", RBAC_GROUP, resource.plural, name, namespace)):
                return
            granted = _EVERYTHING if content.get("aggregationRule") else content.get("rules") or ()
        elif resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            reference = content["roleRef"]
            same = ("roleRef", "subjects")
            if old is not None and all(content.get(field) == old.get(field) for field in same):
                return
            role = CLUSTER_ROLES if reference.get("kind") == CLUSTER_ROLES.kind else ROLES
            if self._rbac.allows(user, Action("bind", RBAC_GROUP, role.plural, reference["name"], namespace)):
                return
            granted = tuple(self._rbac.rules_of(reference, namespace))
        else:
            return
        held = list(self._rbac.rules(user, namespace))
        missing = [one for one in _parts(granted) if not any(covers(rule, one) for rule in held)]
        if missing:
            groups = " ".join(f'"{group}"' for group in user.groups)
            rules = "\n".join(sorted(_texts(missing)))
            text = _NOT_HELD.format(user=user.name, groups=groups, rules=rules)
            raise statuses.forbidden(resource, name, text)


def _parts(rules: Iterable[Content]) -> Iterator[Action]:
    """What rules allow, one by one."""
    # component-helpers/auth/rbac/validation/policy_comparator.go: BreakdownRule
    for rule in rules:
        for verb in rule.get("verbs") or ():
            for path in rule.get("nonResourceURLs") or ():
                yield Action(verb, path=path)
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    for name in rule.get("resourceNames") or ("",):
                        yield Action(verb, group, resource, name)


def _texts(missing: Iterable[Action]) -> Iterator[str]:
    """The missing permissions as kube-apiserver shows them: verbs together."""
    verbs: dict[Action, list[str]] = {}
    for one in missing:
        verbs.setdefault(one._replace(verb=""), []).append(one.verb)
    for one, allowed in verbs.items():
        listed = " ".join(f'"{verb}"' for verb in allowed)
        if one.path:
            yield f'{{NonResourceURLs:["{one.path}"], Verbs:[{listed}]}}'
            continue
        names = f', ResourceNames:["{one.name}"]' if one.name else ""
        yield f'{{APIGroups:["{one.group}"], Resources:["{one.resource}"]{names}, Verbs:[{listed}]}}'
