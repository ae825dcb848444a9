"""SelfSubjectReviews and access reviews: every token may do everything."""

from __future__ import annotations

from typing import Any, Final

from bayplan.embedded.server.kinds import Resource

USER: Final = "kubernetes-admin"
MASTERS: Final = "system:masters"
GROUPS: Final = (MASTERS, "system:authenticated")


def review(resource: Resource, content: dict[str, Any], tokens: frozenset[str]) -> dict[str, Any]:
    """The review with its status."""
    user = {"username": USER, "groups": list(GROUPS)}
    status: dict[str, Any]
    if resource.kind == "SelfSubjectReview":
        status = {"userInfo": user}
    elif resource.kind == "TokenReview":
        token = (content.get("spec") or {}).get("token")
        known = isinstance(token, str) and token in tokens
        status = {"authenticated": True, "user": user} if known else {"user": {}}
    elif resource.kind == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status = {
            "resourceRules": [everything],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    elif resource.kind == "SelfSubjectAccessReview":
        status = {"allowed": True}
    else:
        # Reviews about other users: for example of a scheduler's own server, about clients that want its
        # metrics.
        status = {"allowed": MASTERS in ((content.get("spec") or {}).get("groups") or ())}
    return {
        "metadata": {},
        **content,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "status": status,
    }
