"""Pods of a scenario: requests, affinities, spreading, tolerations, priorities, volumes."""

from __future__ import annotations

from conformance.differential.drawing import APPS, HOST, IMAGES, NAMESPACES, REGION, ZONE, Draw, Raw, Theme
from conformance.differential.nodes import Nodes
from conformance.differential.storage import pod_volumes


class Pods:
    """Draws pods to a theme; some of them select nodes."""

    def __init__(self, draw: Draw, theme: Theme, nodes: Nodes) -> None:
        self._draw = draw
        self._theme = theme
        self._nodes = nodes

    def make(self) -> Raw:
        draw = self._draw
        labels = {"app": draw.choice(APPS)}
        if draw.maybe(0.4):
            labels["rev"] = str(draw.randint(1, 3))
        spec: Raw = {
            "containers": [self._container(index) for index in range(draw.choice((1, 1, 1, 2, 3)))],
            "terminationGracePeriodSeconds": 0,
        }
        if draw.maybe(0.15):
            spec["initContainers"] = [self._container(9, init=True)]
        if draw.maybe(0.1):
            spec["nodeSelector"] = draw.choice(({"disk": "ssd"}, {ZONE: "z1"}, {"disk": "hdd", ZONE: "z2"}))
        if draw.maybe(0.3):
            spec["tolerations"] = [self._toleration() for _ in range(draw.randint(1, 2))]
        if affinity := self._affinity(labels):
            spec["affinity"] = affinity
        if self._theme.spreads and draw.maybe(0.5):
            spec["topologySpreadConstraints"] = self._spread(labels)
        spec["priority"] = 0
        if self._theme.preempts:
            spec["priority"] = draw.choice((0, 0, 10, 100, 1000))
            if draw.maybe(0.1):
                spec["preemptionPolicy"] = "Never"
        if self._theme.volumes and draw.maybe(0.5):
            spec["volumes"] = pod_volumes(draw)
        pod: Raw = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": draw.name("p"),
                "namespace": draw.choice(list(NAMESPACES)),
                "labels": labels,
            },
            "spec": spec,
        }
        if self._theme.owned and draw.maybe(0.5):
            pod["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"rs-{labels['app']}",
                    "uid": f"00000000-0000-0000-0000-00000000000{APPS.index(labels['app'])}",
                    "controller": True,
                }
            ]
        return pod

    def _container(self, index: int, *, init: bool = False) -> Raw:
        draw = self._draw
        requests: dict[str, str] = {}
        if draw.maybe(0.85):
            requests["cpu"] = draw.choice(
                ("100m", "250m", "500m", "1", "1500m") if not self._theme.crowded else ("500m", "1", "2")
            )
        if draw.maybe(0.75):
            requests["memory"] = draw.choice(("128Mi", "500Mi", "1Gi", "2Gi", "1000000000"))
        if draw.maybe(0.1):
            requests["ephemeral-storage"] = draw.choice(("1Gi", "15Gi"))
        resources: Raw = {"requests": requests}
        if draw.maybe(0.1):
            requests["example.com/gpu"] = "1"
            resources["limits"] = {"example.com/gpu": "1"}
        container: Raw = {"name": f"c{index}", "image": draw.choice(IMAGES), "resources": resources}
        if init and draw.maybe(0.5):
            container["restartPolicy"] = "Always"
        if not init and draw.maybe(0.12):
            port: Raw = {"containerPort": 80, "hostPort": draw.choice((8080, 8081))}
            if draw.maybe(0.3):
                port["hostIP"] = draw.choice(("127.0.0.1", "0.0.0.0", "10.0.0.1"))
            if draw.maybe(0.2):
                port["protocol"] = "UDP"
            container["ports"] = [port]
        return container

    def _toleration(self) -> Raw:
        return self._draw.choice(
            (
                {"operator": "Exists"},
                {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
                {"key": "dedicated", "operator": "Exists"},
                {"key": "broken", "operator": "Exists", "effect": "NoExecute"},
                {"key": "flaky", "operator": "Exists", "effect": "PreferNoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            )
        )

    def _affinity(self, labels: dict[str, str]) -> Raw:
        affinity: Raw = {}
        if self._draw.maybe(0.12):
            terms = [self._nodes.term() for _ in range(self._draw.randint(1, 2))]
            affinity["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        if self._theme.prefers and self._draw.maybe(0.3):
            node = affinity.setdefault("nodeAffinity", {})
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self._draw.randint(1, 100), "preference": self._nodes.term()}
                for _ in range(self._draw.randint(1, 2))
            ]
        if self._theme.affine:
            for kind, rng in (("podAffinity", 0.2), ("podAntiAffinity", 0.25)):
                if self._draw.maybe(rng):
                    affinity.setdefault(kind, {})["requiredDuringSchedulingIgnoredDuringExecution"] = [
                        self._pod_term(labels) for _ in range(self._draw.choice((1, 1, 2)))
                    ]
                if self._theme.prefers and self._draw.maybe(rng):
                    affinity.setdefault(kind, {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
                        {"weight": self._draw.randint(1, 100), "podAffinityTerm": self._pod_term(labels)}
                        for _ in range(self._draw.choice((1, 1, 2)))
                    ]
        return affinity

    def _selector(self, labels: dict[str, str]) -> Raw:
        draw = self._draw
        return draw.choice(
            (
                {"matchLabels": {"app": labels["app"]}},
                {"matchLabels": {"app": labels["app"]}},
                {"matchLabels": {"app": draw.choice(APPS)}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": draw.sample(APPS, 2)}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": draw.sample(APPS, 3)}]},
                {"matchExpressions": [{"key": "rev", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "rev", "operator": "DoesNotExist"}]},
                {},
            )
        )

    def _pod_term(self, labels: dict[str, str]) -> Raw:
        draw = self._draw
        term: Raw = {
            "topologyKey": draw.choice((ZONE, ZONE, HOST, REGION, "disk")),
            "labelSelector": self._selector(labels),
        }
        if draw.maybe(0.2):
            term["namespaces"] = draw.sample(list(NAMESPACES), draw.randint(1, 2))
        if draw.maybe(0.2):
            term["namespaceSelector"] = draw.choice(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "stage", "operator": "Exists"}]},
                )
            )
        if draw.maybe(0.1) and "rev" in labels and term["labelSelector"].get("matchLabels"):
            term[draw.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
        return term

    def _spread(self, labels: dict[str, str]) -> list[Raw]:
        found = []
        for key in self._draw.some((ZONE, HOST, REGION, "disk"), 2) or [ZONE]:
            constraint: Raw = {
                "topologyKey": key,
                "maxSkew": self._draw.randint(1, 3),
                "whenUnsatisfiable": self._draw.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": self._selector(labels),
            }
            if self._draw.maybe(0.2):
                constraint["nodeAffinityPolicy"] = self._draw.choice(("Honor", "Ignore"))
            if self._draw.maybe(0.2):
                constraint["nodeTaintsPolicy"] = self._draw.choice(("Honor", "Ignore"))
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self._draw.maybe(0.2):
                constraint["minDomains"] = self._draw.randint(1, 4)
            if self._draw.maybe(0.1) and "rev" in labels:
                constraint["matchLabelKeys"] = ["rev"]
            found.append(constraint)
        return found
