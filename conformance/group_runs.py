"""Records runs of the real kube-scheduler with pod groups, in the format of runs/groups.

    python -m conformance.group_runs              # plays all scenarios, and compares with the recorded files
    python -m conformance.group_runs --write      # records them again

The scenarios are those that the older recordings do not have: trees of groups, claims of groups, and single
pods that evict gangs. Each is recorded twice, and written only if both have the same outcome.
`runs/groups/README.md` describes the format; backoffs are cut to a second, so that a scheduler that has
written nothing for some seconds has tried everything.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bayplan.simulate.group_runs import first_group_difference
from conformance.harness.admin import Admin, Raw
from conformance.harness.control_plane import NOT_ADMITTED, ControlPlane
from conformance.harness.objects import condition, node, pod
from conformance.harness.process import Process
from conformance.harness.programs import obtain
from conformance.harness.schedulers import configuration, start_kube_scheduler, wait_until_synced

RELEASE: Final = "1.37"
FILES: Final = Path(__file__).parent / "runs" / "groups"
KINDS: Final = (
    "Pod",
    "PodGroup",
    "CompositePodGroup",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "Node",
)
"""What scenarios create, in the order in which it is deleted."""
GATES: Final = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")
CLAIM_GATES: Final = ("GenericWorkload", "DRAWorkloadResourceClaims")
UNIT_GATES: Final = ("GenericWorkload",)
QUIET_SECONDS: Final = 5.0
MAX_SETTLE_SECONDS: Final = 60.0
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


def scenarios() -> list[Raw]:
    made = []
    for kind, gates, runs in (
        ("composite", GATES, trees()),
        ("claims", CLAIM_GATES, claims()),
        ("units", UNIT_GATES, units()),
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


# Recording


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    gates = ",".join(f"{gate}=true" for gate in sorted({*GATES, *CLAIM_GATES}))
    apis = "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
    options = [f"--feature-gates={gates}", f"--runtime-config={apis}"]
    without = (*NOT_ADMITTED, "PodGroupProtection")
    with ControlPlane(obtain(RELEASE), directory, options=options, not_admitted=without) as plane:
        yield plane


def record(plane: ControlPlane, run: Raw) -> Raw:
    """The run with what kube-scheduler did until each `settle`, and objects as the server stored them."""
    return asyncio.run(_record(plane, run))


async def _record(plane: ControlPlane, run: Raw) -> Raw:
    gates = ",".join(f"{gate}=true" for gate in run["featureGates"])
    more = {key: value for key, value in run["config"].items() if key.startswith(("p", "P"))}
    async with Admin(plane.access()) as admin:
        await admin.clear(*KINDS)
        recorder = _Recorder(admin)
        scheduler: Process | None = None
        steps = []
        try:
            for step in run["steps"]:
                if step["op"] == "start":
                    config = configuration(plane, **more)
                    scheduler = start_kube_scheduler(plane, config, flags=[f"--feature-gates={gates}"])
                    wait_until_synced(scheduler)
                    steps.append(step)
                else:
                    steps.append(await recorder.play(step))
        finally:
            if scheduler is not None:
                scheduler.stop()
        return {**run, "steps": steps}


class _Recorder:
    """Executes the steps of a run on an API server, and collects what the scheduler has done."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._known: dict[str, Raw] = {}
        """The pods of the last settle and those created since, by uid; without those deleted by steps."""
        self._scheduled: set[str] = set()
        """The uids of groups that were scheduled once."""

    async def play(self, step: Raw) -> Raw:
        if step["op"] == "settle":
            return {"op": "settle", **await self._settle()}
        if step["op"] == "delete":
            item = await self._admin.get(step["kind"], step["name"], step["namespace"])
            self._known.pop(item["metadata"]["uid"], None)
            await self._admin.delete(step["kind"], step["name"], step["namespace"])
            return step
        created = await self._admin.create(step["object"])
        if created["kind"] == "Pod":
            self._known[created["metadata"]["uid"]] = created
        return {"op": "create", "object": _as_given(created)}

    async def _settle(self) -> Raw:
        start = since = time.monotonic()
        state = await self._state()
        while time.monotonic() - since < QUIET_SECONDS:
            if time.monotonic() - start > MAX_SETTLE_SECONDS:
                raise TimeoutError("kube-scheduler does not settle")
            await asyncio.sleep(0.25)
            found = await self._state()
            if found != state:
                state, since = found, time.monotonic()
        pods = {item["metadata"]["uid"]: item for item in await self._admin.list("Pod")}
        before = {uid for uid, item in self._known.items() if item["spec"].get("nodeName")}
        gone = [_key(item) for uid, item in self._known.items() if uid not in pods]
        self._known = pods
        result = {
            "bound": {
                _key(item): item["spec"]["nodeName"]
                for uid, item in pods.items()
                if item["spec"].get("nodeName") and uid not in before
            },
            "evicted": sorted(gone),
            "waiting": {
                _key(item): _waiting(item) for item in pods.values() if not item["spec"].get("nodeName")
            },
            "groups": {_key(item): self._condition(item) for item in await self._admin.list("PodGroup")},
        }
        made = await self._admin.list("ResourceClaim")
        return result | ({"claims": {_key(item): _claim(item) for item in made}} if made else {})

    async def _state(self) -> list[str]:
        kinds = ("Pod", "PodGroup", "ResourceClaim")
        found = [item for kind in kinds for item in await self._admin.list(kind)]
        return sorted(f"{item['metadata']['uid']} {item['metadata']['resourceVersion']}" for item in found)

    def _condition(self, item: Raw) -> Raw:
        found = condition(item, "PodGroupInitiallyScheduled")
        if found is None:
            return {}
        uid = item["metadata"]["uid"]
        if found["status"] == "True":
            self._scheduled.add(uid)
        if uid in self._scheduled:
            return {"type": found["type"], "status": "True", "reason": "Scheduled", "message": ""}
        return {name: found[name] for name in ("type", "status", "reason", "message")}


def _as_given(item: Raw) -> Raw:
    meta = {key: value for key, value in item["metadata"].items() if key in ("name", "namespace", "labels")}
    return {**item, "metadata": meta}


def _key(item: Raw) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _waiting(item: Raw) -> Raw:
    found, result = condition(item, "PodScheduled"), Raw()
    if found is not None:
        result = {"reason": found["reason"], "message": found["message"]}
    nominated = item.get("status", {}).get("nominatedNodeName")
    return result | ({"nominated": nominated} if nominated else {})


def _claim(item: Raw) -> Raw:
    """The devices of a claim, and for whom it is reserved."""
    status = item.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return {
        "devices": [f"{one['pool']}/{one['device']}" for one in results],
        "reservedFor": sorted(f"{one['resource']}/{one['name']}" for one in status.get("reservedFor") or []),
    }


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
