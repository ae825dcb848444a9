"""Services, replica sets and disruption budgets for the pods of a scenario."""

from __future__ import annotations

from conformance.differential.drawing import APPS, IMAGES, NAMESPACES, Draw, Raw


def service(draw: Draw, app: str) -> Raw:
    namespace = draw.choice(list(NAMESPACES))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"svc-{app}", "namespace": namespace},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }


def replica_set(app: str, namespace: str) -> Raw:
    labels = {"app": app}
    container = {"name": "c", "image": IMAGES[0]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"rs-{app}", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def budget(draw: Draw, number: int) -> Raw:
    allowed = draw.randint(0, 2)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"pdb-{number}", "namespace": draw.choice(list(NAMESPACES))},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": {"app": draw.choice(APPS)}},
        },
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 3,
            "desiredHealthy": 1,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
    }
