"""Records runs of the real kube-scheduler with pod groups, in the format of runs/groups.

    python -m conformance.group_runs              # plays all scenarios, and compares with the recorded files
    python -m conformance.group_runs --write      # records them again

The scenarios are those that the older recordings do not have: trees of groups, claims of groups, single pods
that evict gangs, and groups of low priority. Each is recorded twice, and written only if both have the same
outcome.
`group_recorder.py` plays them. Backoffs are cut to a second, so that everything is tried soon.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bayplan.simulate.group_runs import first_group_difference
from conformance.group_recorder import control_plane, record
from conformance.harness.admin import Raw
from conformance.harness.objects import node, pod

FILES: Final = Path(__file__).parent / "runs" / "groups"
GATES: Final = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")
CLAIM_GATES: Final = ("GenericWorkload", "DRAWorkloadResourceClaims")
UNIT_GATES: Final = ("GenericWorkload",)
CONFIG: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "parallelism": 1,
    "percentageOfNodesToScore": 100,
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 1,
    "profiles": [{"schedulerName": "default-scheduler"}],
}
START: Final = {"op": "start"}
SETTLE: Final = {"op": "settle"}
DRIVER: Final = "gpu.example.com"


# Scenarios


def create(*objects: Raw) -> list[Raw]:
    return [{"op": "create", "object": item} for item in objects]


def delete(kind: str, name: str) -> Raw:
    return {"op": "delete", "kind": kind, "name": name, "namespace": "default"}


def composite(name: str = "tree", groups: int = 0, parent: str = "", key: str = "", **spec: Any) -> Raw:
    return _group("CompositePodGroup", "v1alpha3", name, "minGroupCount", groups, parent, key, spec)


def group(name: str, count: int = 0, parent: str = "tree", key: str = "", **spec: Any) -> Raw:
    return _group("PodGroup", "v1beta1", name, "minCount", count, parent, key, spec)


def _group(
    kind: str, version: str, name: str, field: str, least: int, parent: str, key: str, spec: Raw
) -> Raw:
    policy: Raw = {"gang": {field: least}} if least else {"basic": {}}
    spec = {"schedulingPolicy": policy, "disruptionMode": {"single": {}}, "priority": 0, **spec}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if parent or kind == "CompositePodGroup":
        spec["workloadRef"] = {"workloadName": "w", "templateName": name}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": meta, "spec": spec}


def members(name: str, count: int, *, cpu: str = "1", first: int = 0, **spec: Any) -> list[Raw]:
    given = {"priority": 0, "schedulingGroup": {"podGroupName": name}, **spec}
    return [pod(f"{name}-{number}", cpu=cpu, **given) for number in range(first, first + count)]


def nodes(*sizes: int, **labels: Sequence[str]) -> list[Raw]:
    return [
        node(
            f"n{number}",
            cpu=str(cpu),
            labels={key: values[number] for key, values in labels.items() if values[number]},
        )
        for number, cpu in enumerate(sizes)
    ]


def trees() -> dict[str, list[Raw]]:
    """Composite groups."""
    two = [*members("a", 2), *members("b", 2)]
    both = [composite(groups=2), group("a", 2), group("b", 2)]
    high: Raw = {"priority": 9}
    return {
        "fits": [START, *create(*nodes(2, 2), *both, *two), SETTLE],
        "too few groups": [
            START, *create(*nodes(3), *both, *two), SETTLE, *create(node("n9", cpu="2")), SETTLE,
        ],
        "too few groups from the start": [
            START, *create(*nodes(4), *both, *members("a", 2)), SETTLE,
            *create(*members("b", 1)), SETTLE, *create(*members("b", 1, first=1)), SETTLE,
        ],
        "basic": [
            START, *create(*nodes(3), composite(), group("a", 2), group("b", 2), *members("a", 2)), SETTLE,
            *create(*members("b", 2)), SETTLE, *create(node("n9", cpu="2")), SETTLE,
        ],
        "two of three": [
            START, *create(*nodes(4, 1), composite(groups=2), group("a", 2), group("b", 3), group("c", 2)),
            *create(*members("a", 2), *members("b", 3), *members("c", 2)), SETTLE,
        ],
        "the tree appears last": [
            START, *create(*nodes(2, 2), *two, group("a", 2), group("b", 2)), SETTLE,
            *create(composite(groups=2)), SETTLE,
        ],
        "three levels": [
            START, *create(*nodes(4), composite(groups=2), composite("inner", 2, "tree"), group("a", 1)),
            *create(group("b", 1, "inner"), group("c", 2, "inner")),
            *create(*members("a", 1), *members("b", 1), *members("c", 2)), SETTLE,
        ],
        "three levels that do not fit": [
            START, *create(*nodes(3), composite(groups=2), composite("inner", 2, "tree"), group("a", 1)),
            *create(group("b", 1, "inner"), group("c", 2, "inner")),
            *create(*members("a", 1), *members("b", 1), *members("c", 2)), SETTLE,
        ],
        "one zone": [
            START, *create(*nodes(3, 2, 2, zone=("x", "y", "y")), composite(groups=2, key="zone")),
            *create(group("a", 2), group("b", 2), *two), SETTLE,
        ],
        "racks in a zone": [
            START,
            *create(*nodes(2, 1, 2, 3, zone=("x", "x", "y", "y"), rack=("x1", "x2", "y1", "y2"))),
            *create(composite(groups=2, key="zone"), group("a", 2, key="rack"), group("b", 2, key="rack")),
            *create(*two), SETTLE,
        ],
        "no zone": [
            START, *create(*nodes(4), composite(groups=2, key="zone"), group("a", 2), group("b", 2)),
            *create(*two), SETTLE,
        ],
        "a new group in the tree": [
            START, *create(*nodes(3), composite(groups=1), group("a", 2), *members("a", 2)), SETTLE,
            *create(group("b", 2), *members("b", 2)), SETTLE, delete("PodGroup", "b"), SETTLE,
        ],
        "another priority": [
            START, *create(*nodes(4), composite(groups=1, **high), group("a", 1), *members("a", 1)), SETTLE,
        ],
        "preempts": [
            START, *create(*nodes(1, 1), *[pod(f"low-{i}", cpu="1", priority=0) for i in range(2)]), SETTLE,
            *create(composite(groups=2, **high), group("a", 1, **high), group("b", 1, **high)),
            *create(*members("a", 1, **high), *members("b", 1, **high)), SETTLE,
        ],
        "is evicted as one": [
            START, *create(*nodes(1, 2), composite(groups=2, disruptionMode={"all": {}})),
            *create(group("a", 1), group("b", 1)),
            *create(*members("a", 1, cpu="2"), *members("b", 1)), SETTLE,
            *create(pod("high", cpu="2", **high)), SETTLE,
        ],
        "the root is deleted": [
            START, *create(*nodes(1), *both, *two), SETTLE, delete("CompositePodGroup", "tree"),
            *create(node("n9", cpu="4")), SETTLE, *create(composite(groups=2)), SETTLE,
        ],
    }  # fmt: skip


def devices(count: int, where: str = "n0") -> list[Raw]:
    made = [{"name": f"gpu-{number}"} for number in range(count)]
    spec = {
        "driver": DRIVER,
        "nodeName": where,
        "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
    }
    expression = f'device.driver == "{DRIVER}"'
    return [
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"of-{where}"},
            "spec": {**spec, "devices": made},
        },
    ]  # fmt: skip


def claim(name: str) -> Raw:
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    }
    meta = {"name": name, "namespace": "default"}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def using(name: str) -> Raw:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


def claims() -> dict[str, list[Raw]]:
    """Claims of groups, and claims that members share."""
    shared = using("shared")
    return {
        "a claim of the group": [
            START, *create(*nodes(4, 4), *devices(1, "n1"), claim("shared"), group("a", 2, "", **shared)),
            *create(*members("a", 2, **shared)), SETTLE,
        ],
        "a claim that members share": [
            START, *create(*nodes(4, 4), *devices(1, "n1"), claim("shared"), group("a", 2, "")),
            *create(*members("a", 2, **shared)), SETTLE,
        ],
        "no device for a claim of the group": [
            START, *create(*nodes(4), *devices(1, "n9"), claim("shared"), group("a", 2, "", **shared)),
            *create(*members("a", 2, **shared)), SETTLE,
        ],
        "a device and too few cpus": [
            START, *create(*nodes(1, 4), *devices(1), claim("shared"), group("a", 2, "", **shared)),
            *create(*members("a", 2, **shared)), SETTLE,
        ],
        "a device, too few cpus and a victim elsewhere": [
            START, *create(*nodes(1, 4), *devices(1), claim("shared")),
            *create(group("a", 2, "", priority=9, **shared)),
            *create(pod("low", cpu="1", priority=0, nodeSelector={"kubernetes.io/hostname": "n1"})), SETTLE,
            *create(*members("a", 2, priority=9, **shared)), SETTLE,
        ],
        "a device for one of two": [
            START, *create(*nodes(4), *devices(1), claim("one"), claim("two"), group("a", 2, "")),
            *create(*members("a", 1, **using("one")), *members("a", 1, first=1, **using("two"))), SETTLE,
        ],
        "another group takes the claim": [
            START, *create(*nodes(4), *devices(1), claim("shared"), group("a", 1, "", **shared)),
            *create(*members("a", 1, **shared)), SETTLE,
            *create(group("b", 1, "", **shared), *members("b", 1, **shared)), SETTLE,
        ],
    }  # fmt: skip


def units() -> dict[str, list[Raw]]:
    """Single pods that evict a gang: its pods on other nodes are removed for affinity and spreading, too."""
    selector = {"matchLabels": {"app": "x"}}
    affinity = [{"topologyKey": "zone", "labelSelector": selector}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
    anti = {"podAntiAffinity": required}
    spread = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}
    spread |= {"whenUnsatisfiable": "DoNotSchedule"}
    as_one: Raw = {"disruptionMode": {"all": {}}}
    gang = [group("a", 2, "", **as_one)]

    def of_gang(count: int, **more: Any) -> list[Raw]:
        made = members("a", count, **more)
        return [{**one, "metadata": {**one["metadata"], "labels": {"app": "x"}}} for one in made]

    def high(labels: dict[str, str] | None = None, **spec: Any) -> Raw:
        given = {"priority": 9, "nodeSelector": {"kubernetes.io/hostname": "n0"}, **spec}
        return pod("high", cpu="1", labels={"app": "x"} if labels is None else labels, **given)

    two, three = nodes(2, 2, zone=("x", "x")), nodes(2, 2, 2, zone=("x", "y", "y"))
    return {
        "anti-affinity": [
            START, *create(*two, *gang, *of_gang(2, cpu="2")), SETTLE, *create(high(affinity=anti)), SETTLE,
        ],
        "anti-affinity to members that stay": [
            START, *create(*two, group("a", 2, ""), *of_gang(2, cpu="2")), SETTLE,
            *create(high(affinity=anti)), SETTLE,
        ],
        "affinity to members that go": [
            START, *create(*two, *gang, *of_gang(2, cpu="2")), SETTLE,
            *create(high({}, affinity={"podAffinity": required})), SETTLE,
        ],
        "spreading": [
            START, *create(*three, *gang, *of_gang(3, cpu="2")), SETTLE,
            *create(high(topologySpreadConstraints=[spread])), SETTLE,
        ],
        "one of two gangs": [
            START, *create(*two, *gang, *of_gang(2), group("b", 1, "", **as_one), *members("b", 2)), SETTLE,
            *create(high(affinity=anti)), SETTLE,
        ],
    }  # fmt: skip


def nominations() -> dict[str, list[Raw]]:
    """Pods of higher priority that come while a gang waits for its victims: its second attempt fails, too."""

    def low(count: int) -> list[Raw]:
        steps = [
            step for n in range(count) for step in (*create(pod(f"low-{n}", cpu="1", priority=0)), SETTLE)
        ]
        for number in range(count):
            when = f"2026-01-01T00:{number:02}:00Z"
            steps.append(
                {"op": "started", "namespace": "default", "name": f"low-{number}", "startTime": when}
            )
        return steps

    def gang(least: int, size: int) -> list[Raw]:
        made = members("g", size, priority=50)
        made[0]["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
        ungate = {"op": "ungate", "namespace": "default", "name": "g-0"}
        return [*create(group("g", least, "", priority=50), *made), ungate]

    def high(name: str, where: str, cpu: str) -> list[Raw]:
        chosen = {"kubernetes.io/hostname": where}
        return create(pod(name, cpu=cpu, priority=100, nodeSelector=chosen))

    return {
        "a node has room for one of two": [
            START, *create(*nodes(4, 4)), *low(8), *gang(4, 4), *high("high", "n0", "1"), SETTLE,
        ],
        "two nodes have room for fewer": [
            START, *create(*nodes(3, 3, 3)), *low(9), *gang(3, 5),
            *high("high-0", "n1", "1"), *high("high-1", "n0", "2"), SETTLE,
        ],
    }  # fmt: skip


def low() -> dict[str, list[Raw]]:
    """Groups of low priority, which others evict; also when their PodGroup is gone."""
    least: Raw = {"priority": -10}
    as_one: Raw = {"disruptionMode": {"all": {}}, **least}
    first = {"kubernetes.io/hostname": "n0"}

    def started(*names: str) -> list[Raw]:
        when = "2026-01-01T00:{:02}:00Z"
        return [
            {"op": "started", "namespace": "default", "name": name, "startTime": when.format(number)}
            for number, name in enumerate(names)
        ]

    def orphaned() -> list[Raw]:
        """A single pod and a member of a deleted group, which started later."""
        return [
            START, *create(*nodes(2), group("a", 1, "", **least), pod("single", cpu="1", **least)), SETTLE,
            *create(*members("a", 1, **least)), SETTLE, *started("single", "a-0"), delete("PodGroup", "a"),
        ]  # fmt: skip

    return {
        "by a pod, one by one": [
            START, *create(*nodes(2, 2), group("a", 2, "", **least), *members("a", 4, **least)), SETTLE,
            *started("a-0", "a-1", "a-2", "a-3"), *create(pod("p", cpu="1", priority=0, nodeSelector=first)),
            SETTLE,
        ],
        "by a pod, as one": [
            START, *create(*nodes(2, 2), group("a", 2, "", **as_one), *members("a", 4, **least)), SETTLE,
            *create(pod("p", cpu="1", priority=0, nodeSelector=first)), SETTLE,
        ],
        "by a group, one by one": [
            START, *create(*nodes(2, 2), group("a", 2, "", **least), *members("a", 4, **least)), SETTLE,
            *started("a-0", "a-1", "a-2", "a-3"),
            *create(group("b", 2, "", priority=-5), *members("b", 2, priority=-5)), SETTLE,
        ],
        "by a group, as one": [
            START, *create(*nodes(2, 2), group("a", 2, "", **as_one), *members("a", 4, **least)), SETTLE,
            *create(group("b", 2, "", priority=-5), *members("b", 2, priority=-5)), SETTLE,
        ],
        "that is too large for the cluster": [
            START, *create(*nodes(2), pod("p", cpu="1", priority=-20)), SETTLE,
            *create(group("a", 3, "", **least), *members("a", 3, **least)), SETTLE,
        ],
        "of a deleted group, by a pod": [*orphaned(), *create(pod("p", cpu="1", priority=0)), SETTLE],
        "of a deleted group, by a group": [
            *orphaned(), *create(group("b", 1, "", priority=5), *members("b", 1, priority=5)), SETTLE,
        ],
    }  # fmt: skip


def given_back() -> dict[str, list[Raw]]:
    """Claims that are allocated where the group has no room any more."""
    shared = using("shared")
    two = [*devices(1, "n0"), devices(1, "n1")[1]]
    full = pod("full", cpu="3", priority=0, nodeSelector={"kubernetes.io/hostname": "n0"})

    def moved(least: int, **more: Any) -> list[Raw]:
        """The first member has run on n0 and is gone; n0 is full when the others come."""
        return [
            START, *create(*nodes(3), *two, claim("shared"), group("a", 1, "", **shared, **more)),
            *create(*members("a", 1, **shared, **more)), SETTLE, delete("Pod", "a-0"),
            *create(full, node("n1", cpu="4")), SETTLE,
            {"op": "minCount", "namespace": "default", "name": "a", "minCount": least},
            *create(*members("a", least, first=1, **shared, **more)), SETTLE,
        ]  # fmt: skip

    return {
        "one member": moved(1),
        "two members": moved(2),
    }


def scenarios() -> list[Raw]:
    made = []
    for kind, gates, runs in (
        ("composite", GATES, trees()),
        ("claims", CLAIM_GATES, claims()),
        ("units", UNIT_GATES, units()),
        ("nominations", UNIT_GATES, nominations()),
        ("low", UNIT_GATES, low()),
        ("given-back", CLAIM_GATES, given_back()),
    ):
        for name, steps in runs.items():
            on = dict.fromkeys(gates, True)
            run = {
                "name": f"{kind}: {name}",
                "kind": kind,
                "config": CONFIG,
                "featureGates": on,
                "steps": steps,
            }
            made.append(run)
    return made


# Files


def recorded(kind: str) -> dict[str, Raw]:
    with gzip.open(FILES / f"{kind}.jsonl.gz", "rt") as lines:
        return {run["name"]: run for run in map(json.loads, lines)}


def difference(run: Raw, again: Raw) -> str | None:
    """Where two recordings of a run differ."""
    results = [step for step in again["steps"] if step["op"] == "settle"]
    return first_group_difference(run, results)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.group_runs")
    parser.add_argument("--write", action="store_true", help="record the runs again")
    parser.add_argument("-k", dest="text", default="", help="only runs whose names contain this")
    options = parser.parse_args()
    found: dict[str, Raw] = {}
    with tempfile.TemporaryDirectory() as directory, control_plane(Path(directory)) as plane:
        for run in scenarios():
            if options.text not in run["name"]:
                continue
            new = record(plane, run)
            other = record(plane, run) if options.write else recorded(run["kind"])[run["name"]]
            differs = difference(other, new)
            print(f"{run['name']}: {differs or 'the same'}", flush=True)
            if differs is None:
                found[run["name"]] = new
    if options.write:
        _write(found)
    return 0


def _write(found: dict[str, Raw]) -> None:
    """Writes these runs, and keeps those that were not recorded now."""
    for kind in dict.fromkeys(run["kind"] for run in scenarios()):
        known = recorded(kind) if (FILES / f"{kind}.jsonl.gz").exists() else {}
        names = [run["name"] for run in scenarios() if run["kind"] == kind]
        kept = [run for name in names if (run := found.get(name) or known.get(name)) is not None]
        text = "".join(json.dumps(run, sort_keys=True) + "\n" for run in kept)
        (FILES / f"{kind}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    sys.exit(main())
