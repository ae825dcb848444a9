"""How the scheduler of a scenario is set up: arguments and weights of its plugins."""

from __future__ import annotations

from conformance.differential.drawing import HOST, ZONE, Draw, Raw
from conformance.differential.nodes import Nodes


def make_configuration(draw: Draw, nodes: Nodes) -> Raw:
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
    if draw.maybe(0.3):
        arguments.append(_fit_arguments(draw))
    if draw.maybe(0.2):
        weight = draw.choice((0, 1, 5, 100))
        arguments.append(
            {
                "name": "InterPodAffinity",
                "args": {"hardPodAffinityWeight": weight} | _ignores_others(draw),
            }
        )
    if draw.maybe(0.2):
        arguments.append(
            {
                "name": "PodTopologySpread",
                "args": {
                    "defaultingType": "List",
                    "defaultConstraints": [
                        {
                            "topologyKey": draw.choice((ZONE, HOST)),
                            "maxSkew": draw.randint(1, 3),
                            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway")),
                        }
                    ],
                },
            }
        )
    if draw.maybe(0.1):
        arguments.append({"name": "NodeAffinity", "args": {"addedAffinity": _added_affinity(nodes)}})
    if arguments:
        profile["pluginConfig"] = arguments
    if draw.maybe(0.2):
        name = draw.choice(("NodeResourcesFit", "ImageLocality", "TaintToleration", "InterPodAffinity"))
        profile["plugins"] = {
            "score": {
                "disabled": [{"name": name}],
                "enabled": [{"name": name, "weight": draw.randint(1, 20)}],
            }
        }
    return config


def _ignores_others(draw: Draw) -> Raw:
    return {"ignorePreferredTermsOfExistingPods": True} if draw.maybe(0.5) else {}


def _added_affinity(nodes: Nodes) -> Raw:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": nodes.term()}]}


def _fit_arguments(draw: Draw) -> Raw:
    resources = [{"name": name, "weight": draw.randint(1, 5)} for name in ("cpu", "memory")]
    if draw.maybe(0.4):
        resources.append({"name": "example.com/gpu", "weight": 3})
    kind = draw.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    strategy: Raw = {"type": kind, "resources": resources}
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {
            "shape": [
                {"utilization": 0, "score": draw.randint(0, 10)},
                {"utilization": 50, "score": draw.randint(0, 10)},
                {"utilization": 100, "score": draw.randint(0, 10)},
            ]
        }
    return {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
