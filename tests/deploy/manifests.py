"""The manifests of `deploy/` as tests see them: objects, and the permissions that roles grant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.permissions import Permission

DEPLOY = Path(__file__).parents[2] / "deploy"
SECOND = DEPLOY / "second-scheduler"
OPTIONAL = DEPLOY / "optional"
REPLACE = DEPLOY / "replace"
CONFIG = SECOND / "configuration" / "scheduler.yaml"
"""Goes into a ConfigMap."""

Manifest = dict[str, Any]


def objects(*paths: Path) -> list[Manifest]:
    """All objects of these files, or of the manifests in these directories."""
    found: list[Manifest] = []
    for path in paths:
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            found += [item for item in yaml.safe_load_all(file.read_text()) if item is not None]
    return found


def the(kind: str, *paths: Path) -> Manifest:
    """The only object of a kind."""
    (found,) = (item for item in objects(*paths) if item["kind"] == kind)
    return found


def granted(*paths: Path) -> frozenset[Permission]:
    """What the roles of these files allow, each verb on each resource by itself."""
    return frozenset(
        permission
        for item in objects(*paths)
        if item["kind"] in ("ClusterRole", "Role")
        for permission in _of(item)
    )


def _of(role: Manifest) -> Iterator[Permission]:
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Permission(group, resource, verb, namespace, name)


def pod_spec(item: Manifest) -> Manifest:
    """Of a pod, or of what makes pods."""
    spec: Manifest = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
    return spec
