"""Scenarios from a seed: nodes, pods and what else decisions depend on, in unlikely combinations.

A scenario is a run (`conformance/runs/README.md`) without outcomes. What goes in are objects as a user would
write them; the API server defaults and checks them when they are played. One it refuses is left out.

No node has images: how many nodes have one is counted differently on purpose (`docs/differences.md`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

Raw = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
REGION: Final = "topology.kubernetes.io/region"
NAMESPACES: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "prod": {"stage": "prod"},
    "team-a": {"team": "a", "stage": "test"},
    "team-b": {"team": "b"},
}
APPS: Final = ("web", "db", "cache", "batch", "log")
IMAGES: Final = ("nginx:1.27", "registry.example/ml/train:v3", "redis:7", "registry.example/tool")
TAINTS: Final = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "batch", "effect": "PreferNoSchedule"},
    {"key": "flaky", "effect": "PreferNoSchedule"},
    {"key": "broken", "effect": "NoExecute"},
)


class Scenario:
    """Makes one scenario. Each `make_` method draws one object."""

    def __init__(self, seed: int, *, steps: int = 90) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self._steps = steps
        self._nodes: dict[str, Raw] = {}
        self._made = 0
        draw = self.random.random
        self._spreads, self._affine, self._prefers = draw() < 0.6, draw() < 0.6, draw() < 0.6
        self._preempts, self._volumes, self._crowded = draw() < 0.35, draw() < 0.4, draw() < 0.5
        self._owned = draw() < 0.3

    def make(self) -> Raw:
        """The whole scenario."""
        steps: list[Raw] = [self._create(item) for item in self._others()]
        steps += [self._create(self.make_node()) for _ in range(self.random.randint(3, 20))]
        while len(steps) < self._steps:
            steps.extend(self._one_step())
        return {
            "name": f"differential-{self.seed}",
            "kind": "differential",
            "config": self.make_config(),
            "namespaces": {
                name: {"kubernetes.io/metadata.name": name, **labels} for name, labels in NAMESPACES.items()
            },
            "steps": steps,
        }

    def _one_step(self) -> list[Raw]:
        what = self.random.random()
        if what < 0.05:
            return [self._create(self.make_node())]
        if what < 0.11 and self._nodes:
            return [{"op": "update", "object": self._changed_node()}]
        if what < 0.13 and len(self._nodes) > 3:
            name = self.random.choice(list(self._nodes))
            del self._nodes[name]
            return [{"op": "delete", "kind": "Node", "name": name}]
        if what < 0.19:
            return [{"op": "delete-some-pod", "choice": self.random.random()}]
        pod = self.make_pod()
        if self.random.random() < 0.5:
            return [{"op": "schedule", "pod": pod}]
        # Pods of a kind come in groups.
        copies = []
        for _ in range(self.random.randint(2, 6)):
            meta = {**pod["metadata"], "name": self._name("p")}
            copies.append({"op": "schedule", "pod": {**pod, "metadata": meta}})
        return copies

    @staticmethod
    def _create(item: Raw) -> Raw:
        return {"op": "create", "object": item}

    # Drawing

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def _some(self, choices: Sequence[Any], most: int = 3) -> list[Any]:
        return self.random.sample(list(choices), self.random.randint(0, min(most, len(choices))))

    def _maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    # Nodes

    def make_node(self) -> Raw:
        draw = self.random
        name = self._name("n")
        labels = {HOST: name, "kubernetes.io/os": "linux"}
        if self._maybe(0.9):
            labels[ZONE] = draw.choice(("z1", "z2", "z3"))
        if self._maybe(0.3):
            labels[REGION] = draw.choice(("r1", "r2"))
        labels |= {"disk": draw.choice(("ssd", "hdd"))} if self._maybe(0.5) else {}
        labels |= {"size": str(draw.randint(1, 9))} if self._maybe(0.4) else {}
        if self._maybe(0.05):
            del labels[HOST]
        amounts = {
            "cpu": draw.choice(("2", "4", "8", "3900m")),
            "memory": draw.choice(("4Gi", "8Gi", "7900Mi", "16Gi")),
            "pods": draw.choice(("4", "10", "110", "110")),
        }
        if self._maybe(0.5):
            amounts["ephemeral-storage"] = draw.choice(("20Gi", "100Gi"))
        if self._maybe(0.3):
            amounts["example.com/gpu"] = str(draw.randint(1, 8))
        node: Raw = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": amounts,
                "allocatable": dict(amounts),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        if self._maybe(0.25):
            node["spec"]["taints"] = self._some(TAINTS, 2)
        if self._maybe(0.06):
            node["spec"]["unschedulable"] = True
        self._nodes[name] = node
        return node

    def _changed_node(self) -> Raw:
        name = self.random.choice(list(self._nodes))
        old, new = self._nodes[name], self.make_node()
        del self._nodes[new["metadata"]["name"]]
        new["metadata"]["name"] = name
        if HOST in new["metadata"]["labels"]:
            new["metadata"]["labels"][HOST] = name
        part = self.random.choice(("metadata", "spec", "status"))
        changed = {**old, part: new[part]}
        self._nodes[name] = changed
        return changed

    # Pods

    def make_pod(self) -> Raw:
        draw = self.random
        labels = {"app": draw.choice(APPS)}
        if self._maybe(0.4):
            labels["rev"] = str(draw.randint(1, 3))
        spec: Raw = {
            "containers": [self._container(index) for index in range(draw.choice((1, 1, 1, 2, 3)))],
            "terminationGracePeriodSeconds": 0,
        }
        if self._maybe(0.15):
            spec["initContainers"] = [self._container(9, init=True)]
        if self._maybe(0.1):
            spec["nodeSelector"] = draw.choice(({"disk": "ssd"}, {ZONE: "z1"}, {"disk": "hdd", ZONE: "z2"}))
        if self._maybe(0.3):
            spec["tolerations"] = [self._toleration() for _ in range(draw.randint(1, 2))]
        if affinity := self._affinity(labels):
            spec["affinity"] = affinity
        if self._spreads and self._maybe(0.5):
            spec["topologySpreadConstraints"] = self._spread(labels)
        spec["priority"] = 0
        if self._preempts:
            spec["priority"] = draw.choice((0, 0, 10, 100, 1000))
            if self._maybe(0.1):
                spec["preemptionPolicy"] = "Never"
        if self._volumes and self._maybe(0.5):
            spec["volumes"] = self._pod_volumes()
        pod: Raw = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._name("p"),
                "namespace": draw.choice(list(NAMESPACES)),
                "labels": labels,
            },
            "spec": spec,
        }
        if self._owned and self._maybe(0.5):
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
        draw = self.random
        requests: dict[str, str] = {}
        if self._maybe(0.85):
            requests["cpu"] = draw.choice(
                ("100m", "250m", "500m", "1", "1500m") if not self._crowded else ("500m", "1", "2")
            )
        if self._maybe(0.75):
            requests["memory"] = draw.choice(("128Mi", "500Mi", "1Gi", "2Gi", "1000000000"))
        if self._maybe(0.1):
            requests["ephemeral-storage"] = draw.choice(("1Gi", "15Gi"))
        resources: Raw = {"requests": requests}
        if self._maybe(0.1):
            requests["example.com/gpu"] = "1"
            resources["limits"] = {"example.com/gpu": "1"}
        container: Raw = {"name": f"c{index}", "image": draw.choice(IMAGES), "resources": resources}
        if init and self._maybe(0.5):
            container["restartPolicy"] = "Always"
        if not init and self._maybe(0.12):
            port: Raw = {"containerPort": 80, "hostPort": draw.choice((8080, 8081))}
            if self._maybe(0.3):
                port["hostIP"] = draw.choice(("127.0.0.1", "0.0.0.0", "10.0.0.1"))
            if self._maybe(0.2):
                port["protocol"] = "UDP"
            container["ports"] = [port]
        return container

    def _toleration(self) -> Raw:
        return self.random.choice(
            (
                {"operator": "Exists"},
                {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
                {"key": "dedicated", "operator": "Exists"},
                {"key": "broken", "operator": "Exists", "effect": "NoExecute"},
                {"key": "flaky", "operator": "Exists", "effect": "PreferNoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            )
        )

    def _requirement(self) -> Raw:
        draw = self.random
        return draw.choice(
            (
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                {"key": ZONE, "operator": "In", "values": draw.sample(["z1", "z2", "z3"], 2)},
                {"key": "size", "operator": "Gt", "values": [str(draw.randint(1, 6))]},
                {"key": "size", "operator": "Lt", "values": [str(draw.randint(4, 9))]},
                {"key": "size", "operator": "Exists"},
                {"key": REGION, "operator": "DoesNotExist"},
            )
        )

    def _node_term(self) -> Raw:
        term: Raw = {"matchExpressions": [self._requirement() for _ in range(self.random.randint(1, 2))]}
        if self._maybe(0.1) and self._nodes:
            name = self.random.choice(list(self._nodes))
            operator = self.random.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        return term

    def _affinity(self, labels: dict[str, str]) -> Raw:
        affinity: Raw = {}
        if self._maybe(0.12):
            terms = [self._node_term() for _ in range(self.random.randint(1, 2))]
            affinity["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        if self._prefers and self._maybe(0.3):
            node = affinity.setdefault("nodeAffinity", {})
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.random.randint(1, 100), "preference": self._node_term()}
                for _ in range(self.random.randint(1, 2))
            ]
        if self._affine:
            for kind, chance in (("podAffinity", 0.2), ("podAntiAffinity", 0.25)):
                if self._maybe(chance):
                    affinity.setdefault(kind, {})["requiredDuringSchedulingIgnoredDuringExecution"] = [
                        self._pod_term(labels) for _ in range(self.random.choice((1, 1, 2)))
                    ]
                if self._prefers and self._maybe(chance):
                    affinity.setdefault(kind, {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
                        {"weight": self.random.randint(1, 100), "podAffinityTerm": self._pod_term(labels)}
                        for _ in range(self.random.choice((1, 1, 2)))
                    ]
        return affinity

    def _selector(self, labels: dict[str, str]) -> Raw:
        draw = self.random
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
        draw = self.random
        term: Raw = {
            "topologyKey": draw.choice((ZONE, ZONE, HOST, REGION, "disk")),
            "labelSelector": self._selector(labels),
        }
        if self._maybe(0.2):
            term["namespaces"] = draw.sample(list(NAMESPACES), draw.randint(1, 2))
        if self._maybe(0.2):
            term["namespaceSelector"] = draw.choice(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "stage", "operator": "Exists"}]},
                )
            )
        if self._maybe(0.1) and "rev" in labels and term["labelSelector"].get("matchLabels"):
            term[draw.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
        return term

    def _spread(self, labels: dict[str, str]) -> list[Raw]:
        found = []
        for key in self._some((ZONE, HOST, REGION, "disk"), 2) or [ZONE]:
            constraint: Raw = {
                "topologyKey": key,
                "maxSkew": self.random.randint(1, 3),
                "whenUnsatisfiable": self.random.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": self._selector(labels),
            }
            if self._maybe(0.2):
                constraint["nodeAffinityPolicy"] = self.random.choice(("Honor", "Ignore"))
            if self._maybe(0.2):
                constraint["nodeTaintsPolicy"] = self.random.choice(("Honor", "Ignore"))
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self._maybe(0.2):
                constraint["minDomains"] = self.random.randint(1, 4)
            if self._maybe(0.1) and "rev" in labels:
                constraint["matchLabelKeys"] = ["rev"]
            found.append(constraint)
        return found

    def _pod_volumes(self) -> list[Raw]:
        claim = f"claim-{self.random.randint(0, 9)}"
        disk = {"pdName": f"disk-{self.random.randint(0, 2)}", "readOnly": self._maybe(0.5)}
        return self.random.choice(
            (
                [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
                [{"name": "v", "emptyDir": {}}],
                [{"name": "v", "gcePersistentDisk": disk}],
                [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}],
            )
        )

    # What else there is

    def _others(self) -> list[Raw]:
        items: list[Raw] = []
        if self._owned:
            items += [self._service(app) for app in self._some(APPS)]
            items += [self._replica_set(app, namespace) for app in APPS for namespace in ("default", "prod")]
        if self._preempts:
            items += [self._budget(number) for number in range(self.random.randint(0, 3))]
        if self._volumes:
            items += self._storage()
        return items

    def _service(self, app: str) -> Raw:
        namespace = self.random.choice(list(NAMESPACES))
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"svc-{app}", "namespace": namespace},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
        }

    def _replica_set(self, app: str, namespace: str) -> Raw:
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

    def _budget(self, number: int) -> Raw:
        allowed = self.random.randint(0, 2)
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"pdb-{number}", "namespace": self.random.choice(list(NAMESPACES))},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchLabels": {"app": self.random.choice(APPS)}},
            },
            "status": {
                "disruptionsAllowed": allowed,
                "currentHealthy": 3,
                "desiredHealthy": 1,
                "expectedPods": 3,
                "observedGeneration": 1,
            },
        }

    def _storage(self) -> list[Raw]:
        items: list[Raw] = [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "local"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "now"},
                "provisioner": "example.com/now",
                "volumeBindingMode": "Immediate",
            },
        ]
        for number in range(8):
            items += self._claim(number)
        return items

    def _claim(self, number: int) -> list[Raw]:
        draw = self.random
        bound = self._maybe(0.8)
        modes = [draw.choice(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))]
        namespace = draw.choice(list(NAMESPACES))
        name = f"claim-{number}"
        claim: Raw = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": modes,
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "now",
            },
        }
        if not bound:
            return [claim]
        volume: Raw = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{number}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": modes,
                "storageClassName": "now",
                "claimRef": {"namespace": namespace, "name": name},
                "csi": {"driver": "example.com", "volumeHandle": f"h{number}"},
            },
            "status": {"phase": "Bound"},
        }
        if self._maybe(0.5):
            requirement = {
                "key": ZONE,
                "operator": "In",
                "values": draw.sample(["z1", "z2", "z3"], draw.randint(1, 2)),
            }
            volume["spec"]["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
            }
        elif self._maybe(0.4):
            volume["metadata"]["labels"] = {ZONE: draw.choice(("z1", "z2__z3"))}
        claim["spec"]["volumeName"] = f"pv-{number}"
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        claim["status"] = {"phase": "Bound"}
        return [volume, claim]

    # How the scheduler is set up

    def make_config(self) -> Raw:
        profile: Raw = {"schedulerName": "default-scheduler"}
        config: Raw = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "parallelism": 1,
            "percentageOfNodesToScore": 100,
            "profiles": [profile],
        }
        arguments: list[Raw] = []
        if self._maybe(0.3):
            arguments.append(self._fit_arguments())
        if self._maybe(0.2):
            weight = self.random.choice((0, 1, 5, 100))
            arguments.append(
                {
                    "name": "InterPodAffinity",
                    "args": {"hardPodAffinityWeight": weight} | self._ignores_others(),
                }
            )
        if self._maybe(0.2):
            arguments.append(
                {
                    "name": "PodTopologySpread",
                    "args": {
                        "defaultingType": "List",
                        "defaultConstraints": [
                            {
                                "topologyKey": self.random.choice((ZONE, HOST)),
                                "maxSkew": self.random.randint(1, 3),
                                "whenUnsatisfiable": self.random.choice(("DoNotSchedule", "ScheduleAnyway")),
                            }
                        ],
                    },
                }
            )
        if self._maybe(0.1):
            arguments.append({"name": "NodeAffinity", "args": {"addedAffinity": self._added_affinity()}})
        if arguments:
            profile["pluginConfig"] = arguments
        if self._maybe(0.2):
            name = self.random.choice(
                ("NodeResourcesFit", "ImageLocality", "TaintToleration", "InterPodAffinity")
            )
            profile["plugins"] = {
                "score": {
                    "disabled": [{"name": name}],
                    "enabled": [{"name": name, "weight": self.random.randint(1, 20)}],
                }
            }
        return config

    def _ignores_others(self) -> Raw:
        return {"ignorePreferredTermsOfExistingPods": True} if self._maybe(0.5) else {}

    def _added_affinity(self) -> Raw:
        return {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "preference": self._node_term()}
            ]
        }

    def _fit_arguments(self) -> Raw:
        resources = [{"name": name, "weight": self.random.randint(1, 5)} for name in ("cpu", "memory")]
        if self._maybe(0.4):
            resources.append({"name": "example.com/gpu", "weight": 3})
        kind = self.random.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
        strategy: Raw = {"type": kind, "resources": resources}
        if kind == "RequestedToCapacityRatio":
            strategy["requestedToCapacityRatio"] = {
                "shape": [
                    {"utilization": 0, "score": self.random.randint(0, 10)},
                    {"utilization": 50, "score": self.random.randint(0, 10)},
                    {"utilization": 100, "score": self.random.randint(0, 10)},
                ]
            }
        return {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
