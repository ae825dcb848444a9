"""Tokens of ServiceAccounts, impersonation, and roles that are evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from .serving import CONFIG_MAPS, PODS, Caller, Reply, config_map, serve

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ANNA: dict[str, Any] = {"Impersonate-User": "anna"}


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**found, "resourceNames": list(names)} if names else found


def binding(name: str, of: str, kind: str = "Role", subject: dict[str, str] | None = None) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": of}
    who = subject or {"kind": "User", "name": "anna"}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [who]}


async def may(call: Caller, verb: str, resource: str, namespace: str = "default", **more: str) -> bool:
    attributes = {"verb": verb, "resource": resource, "namespace": namespace, **more}
    reply = await call("POST", REVIEWS, {"spec": {"resourceAttributes": attributes}}, **ANNA)
    assert reply.status == 201, reply.body
    allowed: bool = reply.body["status"]["allowed"]
    return allowed


def test_a_role_allows_what_its_rules_name() -> None:
    async def scenario(call: Caller) -> None:
        denied = await call("GET", PODS, **ANNA)
        assert (denied.status, denied.message) == (
            403,
            'pods is forbidden: User "anna" cannot list resource "pods" in API group "" in the namespace '
            '"default"',
        )
        await call(
            "POST", ROLES, role("reader", rule("get list", "pods"), rule("get", "configmaps", "", "a"))
        )
        await call("POST", BINDINGS, binding("anna", "reader"))
        assert (await call("GET", PODS, **ANNA)).status == 200
        assert (await call("GET", f"{PODS}?watch=true", **ANNA)).status == 403
        assert (await call("GET", "/api/v1/pods", **ANNA)).status == 403
        assert (await call("GET", f"{CONFIG_MAPS}/a", **ANNA)).status == 404
        assert (await call("GET", f"{CONFIG_MAPS}/b", **ANNA)).status == 403
        assert (await call("POST", CONFIG_MAPS, config_map(), **ANNA)).status == 403
        assert (await call("GET", "/apis", **ANNA)).status == 200
        assert (await call("GET", "/queue", **ANNA)).status == 403
        assert await may(call, "list", "pods")
        assert not await may(call, "list", "pods", "kube-system")
        assert not await may(call, "get", "pods", subresource="status")
        assert (await call("GET", PODS)).status == 200

    serve(scenario, rbac=True)


def test_cluster_roles_are_aggregated() -> None:
    async def scenario(call: Caller) -> None:
        await call("POST", CLUSTER_BINDINGS, binding("anna", "view", "ClusterRole"))
        assert await may(call, "list", "deployments", "any", group="apps")
        assert not await may(call, "list", "secrets")
        assert not await may(call, "list", "gangs", group="example.com")
        added = role("gangs", rule("get list", "gangs", "example.com"))
        added["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
        await call("POST", CLUSTER_ROLES, added)
        assert await may(call, "list", "gangs", group="example.com")

    serve(scenario, rbac=True)


@pytest.mark.parametrize("rbac", [False, True])
def test_the_token_of_an_account(rbac: bool) -> None:
    async def scenario(call: Caller) -> None:
        await call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        made = await call("POST", f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 700}})
        assert made.status == 201, made.body
        bearer: dict[str, Any] = {"Authorization": f"Bearer {made.body['status']['token']}"}
        who = await call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, **bearer)
        assert who.body["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
        assert (await call("GET", PODS, **bearer)).status == (403 if rbac else 200)
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        await call("POST", CLUSTER_BINDINGS, binding("robot", "view", "ClusterRole", subject))
        assert (await call("GET", PODS, **bearer)).status == 200
        forged: dict[str, Any] = {"Authorization": bearer["Authorization"][:-3] + "AAA"}
        assert (await call("GET", PODS, **forged)).status == 401
        await call("DELETE", f"{ACCOUNTS}/robot")
        assert (await call("GET", PODS, **bearer)).status == 401

    serve(scenario, rbac=rbac)


def test_a_token_lives_at_least_ten_minutes() -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        return await call("POST", f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": 1}})

    reply = serve(scenario)
    assert reply.status == 422
    assert "may not specify a duration less than 10 minutes" in reply.message


def test_impersonation_is_refused_without_rbac() -> None:
    """Otherwise a client would believe that it acts as somebody else."""

    async def scenario(call: Caller) -> Reply:
        return await call("GET", PODS, **ANNA)

    reply = serve(scenario)
    assert reply.status == 403
    assert "--authorization-mode RBAC" in reply.message


def test_who_may_impersonate() -> None:
    async def scenario(call: Caller) -> list[int]:
        await call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        token = (await call("POST", f"{ACCOUNTS}/robot/token", {})).body["status"]["token"]
        headers: dict[str, Any] = {"Authorization": f"Bearer {token}", "Impersonate-User": "admin"}
        masters: dict[str, Any] = {"Impersonate-Group": "system:masters"}
        found = [(await call("GET", PODS, **headers)).status]
        await call("POST", CLUSTER_ROLES, role("pretender", rule("impersonate", "users")))
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        await call("POST", CLUSTER_BINDINGS, binding("robot", "pretender", "ClusterRole", subject))
        other = {"kind": "User", "name": "admin"}
        await call("POST", CLUSTER_BINDINGS, binding("x", "view", "ClusterRole", other))
        found.append((await call("GET", PODS, **headers)).status)
        found.append((await call("GET", PODS, **headers, **masters)).status)
        found.append((await call("GET", PODS, **masters)).status)
        return found

    assert serve(scenario, rbac=True) == [403, 200, 403, 400]


@pytest.mark.parametrize("rbac", [False, True])
def test_a_role_that_has_no_effect_is_a_warning(rbac: bool) -> None:
    async def scenario(call: Caller) -> str:
        reply = await call("POST", ROLES, role("reader", rule("get", "pods")))
        return str(reply.headers.get("Warning", ""))

    assert ("every user may do everything" in serve(scenario, rbac=rbac)) is not rbac


GROUP = "rbac.authorization.k8s.io"
MANAGES = (rule("create update patch", "roles rolebindings", GROUP), rule("get list", "pods"))


@pytest.mark.parametrize(
    ("more", "path", "content", "missing"),
    [
        pytest.param((), ROLES, role("r", rule("get", "pods")), "", id="what they have"),
        pytest.param(
            (),
            ROLES,
            role("r", rule("get delete watch", "pods")),
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}',
            id="more verbs",
        ),
        pytest.param(
            (), ROLES, role("r", rule("get", "pods", "", "p")), "", id="less than what they have: a name"
        ),
        pytest.param(
            (),
            ROLES,
            role("r", rule("*", "*", "*")),
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
            id="everything",
        ),
        pytest.param(
            (rule("escalate", "roles", GROUP),), ROLES, role("r", rule("*", "*", "*")), "", id="may escalate"
        ),
        pytest.param(
            (),
            BINDINGS,
            binding("b", "secrets"),
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
            id="a role with more",
        ),
        pytest.param(
            (rule("bind", "roles", GROUP, "secrets"),), BINDINGS, binding("b", "secrets"), "", id="may bind"
        ),
        pytest.param((), BINDINGS, binding("b", "manages"), "", id="their own role"),
    ],
)
def test_users_grant_only_permissions_that_they_have(
    more: tuple[dict[str, Any], ...], path: str, content: dict[str, Any], missing: str
) -> None:
    async def scenario(call: Caller) -> Reply:
        await call("POST", ROLES, role("secrets", rule("get", "secrets")))
        await call("POST", ROLES, role("manages", *MANAGES, *more))
        await call("POST", BINDINGS, binding("anna", "manages"))
        return await call("POST", path, content, **ANNA)

    reply = serve(scenario, rbac=True)
    assert reply.status == (403 if missing else 201), reply.body
    if missing:
        assert reply.message.endswith(
            'user "anna" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not '
            f"currently held:\n{missing}"
        )


def test_patches_of_roles_are_checked_only_if_they_grant_something() -> None:
    async def scenario(call: Caller) -> list[int]:
        await call("POST", ROLES, role("secrets", rule("get", "secrets")))
        await call("POST", ROLES, role("manages", *MANAGES))
        await call("POST", BINDINGS, binding("anna", "manages"))
        headers = {"Content-Type": "application/merge-patch+json", **ANNA}
        labels = await call("PATCH", f"{ROLES}/secrets", {"metadata": {"labels": {"a": "b"}}}, **headers)
        rules = await call("PATCH", f"{ROLES}/secrets", role("secrets", rule("*", "secrets")), **headers)
        return [labels.status, rules.status]

    assert serve(scenario, rbac=True) == [200, 403]
