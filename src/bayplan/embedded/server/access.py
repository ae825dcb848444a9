"""Who sends a request, and what they may do: tokens, impersonation and RBAC.

The token of the kubeconfig is that of `kubernetes-admin`, in the group system:masters, which may do
everything. `kubectl create token` makes tokens of ServiceAccounts. Without RBAC (the default) whoever has a
token may do everything; with `bayplan up --authorization-mode RBAC` Roles, ClusterRoles and their bindings
decide.

Aggregated ClusterRoles are evaluated as the union of the roles that they select; their own `rules` stay as
they are written. `escalation.py` checks that the author of a role or binding has its permissions.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from bayplan.api.meta import Content
from bayplan.controllers.pods import compiled
from bayplan.embedded.server import statuses
from bayplan.embedded.server.kinds import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    RBAC_GROUP,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from bayplan.embedded.server.objects import ObjectAPI
from bayplan.embedded.server.statuses import StatusError, bad_request

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
_ACCOUNT: Final = "system:serviceaccount:"
_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
MIN_TOKEN_SECONDS: Final = 600
_MAX_TOKEN_SECONDS: Final = 1 << 32


class User(NamedTuple):
    """Who sends a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> Content:
        """As in reviews."""
        info: Content = {"username": self.name, "groups": list(self.groups)}
        return {**info, "uid": self.uid} if self.uid else info


ADMIN: Final = User("kubernetes-admin", (MASTERS, AUTHENTICATED))


class Action(NamedTuple):
    """What a request does, to a resource or to another path."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: `pods/status`."""
    name: str = ""
    namespace: str = ""
    path: str = ""


class Tokens:
    """Tokens of the administrator, and of ServiceAccounts: these are signed with a key from the former."""

    def __init__(self, api: ObjectAPI, admin_tokens: Iterable[str]) -> None:
        self._api = api
        self._admin_tokens = frozenset(admin_tokens)
        if not all(token.strip() for token in self._admin_tokens):
            raise ValueError("an empty token would let everybody in")
        secret = "\n".join(sorted(self._admin_tokens)).encode()
        self._key = hmac.digest(secret, b"tokens of ServiceAccounts", hashlib.sha256)

    def user(self, token: str) -> User | None:
        """The user with this token; None if nobody has it."""
        # Headers are bytes; those that are not UTF-8 become surrogates.
        given = token.strip().encode(errors="surrogateescape")
        if any(hmac.compare_digest(given, known.encode()) for known in self._admin_tokens):
            return ADMIN
        return self._account(given)

    def create(self, name: str, namespace: str, request: Content) -> Content:
        """Answers a TokenRequest for a ServiceAccount."""
        account = self._api.get(SERVICE_ACCOUNTS, name, namespace)["metadata"]
        spec = request.get("spec") or {}
        seconds = spec.get("expirationSeconds", 3600)
        if seconds < MIN_TOKEN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
        elif seconds > _MAX_TOKEN_SECONDS:
            why = "may not specify a duration larger than 2^32 seconds"
        else:
            why = ""
        if why:
            problem = statuses.invalid_field("spec.expirationSeconds", seconds, why)
            raise statuses.invalid(SERVICE_ACCOUNTS, name, [problem])
        now = int(self._api.time())
        audiences = spec.get("audiences") or [_ISSUER]
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": _ISSUER,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["uid"]},
            },
            "nbf": now,
            "sub": f"{_ACCOUNT}{namespace}:{name}",
        }
        signed = f"{_base64({'alg': 'HS256', 'typ': 'JWT'})}.{_base64(claims)}"
        signature = urlsafe_b64encode(self._signature(signed.encode())).rstrip(b"=").decode()
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": self._api.now()},
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": f"{signed}.{signature}", "expirationTimestamp": self._api.after(seconds)},
        }

    def _signature(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, hashlib.sha256)

    def _account(self, token: bytes) -> User | None:
        signed, _, signature = token.rpartition(b".")
        expected = urlsafe_b64encode(self._signature(signed)).rstrip(b"=")
        if not signed or not hmac.compare_digest(signature, expected):
            return None
        payload = signed.partition(b".")[2]
        claims = msgspec.json.decode(urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
        account = claims["kubernetes.io"]["serviceaccount"]
        namespace, name, uid = claims["kubernetes.io"]["namespace"], account["name"], account["uid"]
        found = self._api.store.find(SERVICE_ACCOUNTS, SERVICE_ACCOUNTS.key(name, namespace))
        if claims["exp"] <= self._api.time() or found is None or found.parse()["metadata"]["uid"] != uid:
            return None
        return User(claims["sub"], (*_account_groups(namespace), AUTHENTICATED), uid)


def _account_groups(namespace: str) -> tuple[str, str]:
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


def _base64(content: Content) -> str:
    return urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()


class RBAC:
    """Evaluates the roles and bindings of a store."""

    def __init__(self, api: ObjectAPI) -> None:
        self._api = api

    def allows(self, user: User, action: Action) -> bool:
        if MASTERS in user.groups:
            return True
        return any(covers(rule, action) for rule in self.rules(user, action.namespace))

    def rules(self, user: User, namespace: str = "") -> Iterator[Content]:
        """The rules that apply to a user in a namespace, or in the whole cluster."""
        for binding in self._api.list(CLUSTER_ROLE_BINDINGS):
            if _has_subject(binding, user, ""):
                yield from self.rules_of(binding["roleRef"], "")
        if namespace:
            for binding in self._api.list(ROLE_BINDINGS, namespace):
                if _has_subject(binding, user, namespace):
                    yield from self.rules_of(binding["roleRef"], namespace)

    def rules_of(self, reference: Content, namespace: str) -> Iterator[Content]:
        """The rules of the role that a binding refers to."""
        is_cluster_role = reference.get("kind") == CLUSTER_ROLES.kind
        resource = CLUSTER_ROLES if is_cluster_role else ROLES
        document = self._api.store.find(resource, resource.key(reference.get("name", ""), namespace))
        if document is None:
            return
        role = document.parse()
        yield from role.get("rules") or ()
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        for selector in map(compiled, selectors):
            for other in self._api.list(CLUSTER_ROLES):
                if selector.matches(other["metadata"].get("labels") or {}):
                    yield from other.get("rules") or ()

    def require(self, user: User, action: Action) -> None:
        """Raises StatusError (403) if the user may not do it."""
        if not self.allows(user, action):
            raise forbidden(user, action)

    def create_defaults(self) -> None:
        """Creates the roles that every cluster with RBAC has, as far as they are missing."""
        for resource, content in _defaults():
            if self._api.store.find(resource, content["metadata"]["name"]) is None:
                self._api.create(resource, content)


def forbidden(user: User, action: Action) -> StatusError:
    if action.path:
        message = f'forbidden: User "{user.name}" cannot {action.verb} path "{action.path}"'
        return StatusError(message, 403, reason="Forbidden", details={})
    full = f"{action.resource}.{action.group}" if action.group else action.resource
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    named = f'{full} "{action.name}"' if action.name else full
    message = (
        f'{named} is forbidden: User "{user.name}" cannot {action.verb} resource "{action.resource}" in API '
        f'group "{action.group}" {where}'
    )
    details = {"name": action.name, "group": action.group, "kind": action.resource}
    return StatusError(message, 403, reason="Forbidden", details={k: v for k, v in details.items() if v})


def _has_subject(binding: Content, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            of = subject.get("namespace") or namespace
            if user.name == f"{_ACCOUNT}{of}:{name}":
                return True
    return False


def covers(rule: Content, action: Action) -> bool:
    """Whether a rule allows an action."""
    # rbac.go: RuleAllows
    if not _has(rule.get("verbs"), action.verb):
        return False
    if action.path:
        paths = rule.get("nonResourceURLs") or ()
        return any(
            path in ("*", action.path) or (path.endswith("*") and action.path.startswith(path[:-1]))
            for path in paths
        )
    subresource = action.resource.partition("/")[2]
    wanted = {"*", action.resource, *((f"*/{subresource}",) if subresource else ())}
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups"), action.group)
        and bool(wanted & set(rule.get("resources") or ()))
        and (not names or action.name in names)
    )


def _has(allowed: list[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


# Impersonation


def impersonated(user: User, headers: Mapping[str, str], all_groups: list[str], rbac: RBAC | None) -> User:
    """The user that a request impersonates; the same user if it does not.

    Raises:
        StatusError: without RBAC, or if the user may not impersonate (403), or no user is named (400).
    """
    found = [name for name in headers if name.lower().startswith("impersonate-")]
    if not found:
        return user
    if rbac is None:
        message = (
            f"{found[0]} is not supported without RBAC, where every user may do everything: start the "
            "cluster with --authorization-mode RBAC"
        )
        raise StatusError(message, 403, reason="Forbidden", details={})
    name, uid = headers.get("Impersonate-User", ""), headers.get("Impersonate-Uid", "")
    if not name:
        raise bad_request("requested impersonation without impersonating a user")
    if any(each.lower().startswith("impersonate-extra-") for each in found):
        raise bad_request("Impersonate-Extra- headers are not supported")
    if name.startswith(_ACCOUNT) and name.count(":") == 3:
        namespace, account = name.removeprefix(_ACCOUNT).split(":")
        rbac.require(user, Action("impersonate", "", "serviceaccounts", account, namespace))
        all_groups = all_groups or list(_account_groups(namespace))
    else:
        rbac.require(user, Action("impersonate", "", "users", name))
    for group in all_groups:
        rbac.require(user, Action("impersonate", "", "groups", group))
    if uid:
        rbac.require(user, Action("impersonate", "authentication.k8s.io", "uids", uid))
    return User(name, (*all_groups, AUTHENTICATED), uid)


# Default roles

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_WORKLOADS: Final = (
    (
        "",
        "configmaps endpoints events limitranges namespaces persistentvolumeclaims pods pods/log pods/status "
        "replicationcontrollers replicationcontrollers/scale resourcequotas serviceaccounts services",
    ),
    (
        "apps",
        "controllerrevisions daemonsets deployments deployments/scale replicasets replicasets/scale "
        "statefulsets statefulsets/scale",
    ),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs jobs"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "ingresses networkpolicies"),
    ("discovery.k8s.io", "endpointslices"),
    ("resource.k8s.io", "resourceclaims resourceclaimtemplates"),
)
_READ_ONLY: Final = ("namespaces", "limitranges", "resourcequotas", "pods/log", "pods/status", "events")


def _rules(verbs: tuple[str, ...], *, writes: bool = False) -> list[Content]:
    rules = []
    for group, names in _WORKLOADS:
        resources = [name for name in names.split() if not writes or name not in _READ_ONLY]
        rules.append({"apiGroups": [group], "resources": resources, "verbs": list(verbs)})
    return rules


def _defaults() -> Iterator[tuple[Any, Content]]:
    """The user-facing roles, and those that every authenticated user has."""
    label = "rbac.authorization.k8s.io/aggregate-to-"
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ, *_WRITE]}
    more_of_pods = {
        "apiGroups": [""],
        "resources": ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "pods/eviction"],
        "verbs": ["get", "create"],
    }
    roles = [{"apiGroups": [RBAC_GROUP], "resources": ["roles", "rolebindings"], "verbs": [*_READ, *_WRITE]}]
    parts = {
        "view": _rules(_READ),
        "edit": [*_rules(_WRITE, writes=True), secrets, more_of_pods],
        "admin": roles,
    }
    yield CLUSTER_ROLES, {"metadata": {"name": "cluster-admin"}, "rules": everything}
    contained = {"view": ("view",), "edit": ("view", "edit"), "admin": ("view", "edit", "admin")}
    for name, rules in parts.items():
        labels = {f"{label}{whole}": "true" for whole, of in contained.items() if name in of}
        yield (
            CLUSTER_ROLES,
            {"metadata": {"name": f"system:aggregate-to-{name}", "labels": labels}, "rules": rules},
        )
        selector = {"matchLabels": {f"{label}{name}": "true"}}
        yield (
            CLUSTER_ROLES,
            {"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": [selector]}},
        )
    reviews = [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]
    roots = ("/api", "/apis", "/openapi")
    paths = ["/", "/healthz", "/livez", "/readyz", "/version", *roots, *(f"{root}/*" for root in roots)]
    discovery: list[Content] = [{"nonResourceURLs": paths, "verbs": ["get"]}]
    yield CLUSTER_ROLES, {"metadata": {"name": "system:basic-user"}, "rules": reviews}
    yield CLUSTER_ROLES, {"metadata": {"name": "system:discovery"}, "rules": discovery}
    for name, group in (
        ("cluster-admin", MASTERS),
        ("system:basic-user", AUTHENTICATED),
        ("system:discovery", AUTHENTICATED),
    ):
        subject = {"kind": "Group", "apiGroup": RBAC_GROUP, "name": group}
        reference = {"kind": "ClusterRole", "apiGroup": RBAC_GROUP, "name": name}
        yield CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
