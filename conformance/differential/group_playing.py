"""Records scenarios with groups (`groups.py`), and finds out whether a recording can be repeated."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from bayplan.answers.sources.files import VERSION
from bayplan.simulate.group_runs import first_group_difference
from bayplan.simulate.replay import replay
from conformance.differential.drawing import Raw
from conformance.group_recorder import RELEASE, Recorder
from conformance.group_recorder import record as record_run
from conformance.harness.control_plane import ControlPlane

PAUSE_SECONDS: Final = 0.25
"""Less than a backoff: a group that has been tried is not tried again meanwhile."""

REPETITIONS: Final = 3
"""How often a run that came out differently is recorded again: chance repeats itself, too."""

_TIED: Final = re.compile(r"0/(?!1 )\d+ placements are available")


@dataclass(frozen=True)
class Comparison:
    """A scenario as it was carried out, with what kube-scheduler did."""

    run: Raw
    difference: str | None
    """Where bayplan does something else."""
    unsteady: str | None
    """Where kube-scheduler itself did something else the next time; looked for if there is a difference."""


def difference(run: Raw, results: Sequence[Raw]) -> str | None:
    """Where results differ from those of a run, other than by chance.

    If no placement of a group is feasible, the group names the result of the first, and its members show
    theirs: kube-scheduler generates placements in the order of a map.
    """
    known: dict[str, str] = {}
    tied: set[str] = set()
    steps, recorded = [], [step for step in run["steps"] if step["op"] == "settle"]
    for step in run["steps"]:
        if step["op"] == "create" and step["object"]["kind"] == "PodGroup":
            item = step["object"]
            known[_key(item)] = item["spec"].get("parentCompositePodGroupName") or _key(item)
    for want, have in zip(recorded, results, strict=True):
        tied |= {known[name] for name in want["groups"] if _TIED.search(_message(want, name))}
        steps.append((_without_texts(want, known, tied), _without_texts(have, known, tied)))
    return first_group_difference({"steps": [want for want, _ in steps]}, [have for _, have in steps])


def _message(result: Raw, name: str) -> str:
    return str(result["groups"][name].get("message", ""))


def _without_texts(result: Raw, roots: Mapping[str, str], tied: Collection[str]) -> Raw:
    """The result without the messages of these groups and their members."""

    def cut(items: Raw) -> Raw:
        return {
            name: {field: value for field, value in item.items() if field != "message"}
            if roots.get(name, roots.get(name.rpartition("-")[0])) in tied
            else item
            for name, item in items.items()
        }

    return {**result, "waiting": cut(result["waiting"]), "groups": cut(result["groups"])}


def compare(plane: ControlPlane, scenario: Raw) -> Comparison:
    """Records a scenario and replays the recording with bayplan."""
    run = record(plane, scenario)
    found = difference(run, replay(run)["results"])
    unsteady = None
    if found is not None:
        unsteady = next((other for _ in range(REPETITIONS) if (other := _unsteady(plane, run))), None)
    return Comparison(run, found, unsteady)


def record(plane: ControlPlane, scenario: Raw) -> Raw:
    """The scenario as it was carried out: a run that can be recorded again, and replayed."""
    return {**record_run(plane, scenario, Player), VERSION: RELEASE}


def _unsteady(plane: ControlPlane, run: Raw) -> str | None:
    """Where another recording of the same steps differs."""
    again = record_run(plane, run)
    if len(again["steps"]) != len(run["steps"]):
        return "a step could not be repeated"
    return difference(run, [step for step in again["steps"] if step["op"] == "settle"])


class Player(Recorder):
    """A recorder that also knows the steps of scenarios."""

    async def play(self, step: Raw) -> list[Raw]:
        chosen = await self._chosen(step)
        if chosen is None:
            return await super().play(step)
        steps: list[Raw] = []
        for one in chosen:
            steps += await super().play(one)
        return steps

    async def _chosen(self, step: Raw) -> list[Raw] | None:
        """The steps that a step stands for; None if it is not of these."""
        pods = sorted(await self.admin.list("Pod"), key=lambda item: str(item["metadata"]["name"]))
        match step["op"]:
            case "pause":
                await asyncio.sleep(PAUSE_SECONDS)
                return []
            case "delete-some-pod":
                pods = await self._dispensable(pods)
                return [_delete("Pod", pods[int(step["choice"] * len(pods))])] if pods else []
            case "delete-node":
                # What becomes of units with pods there is said in docs/differences.md.
                units = await self._of_units(pods)
                there = [item for item in units if item["spec"].get("nodeName") == step["name"]]
                node = {"op": "delete", "kind": "Node", "name": step["name"]}
                return [*(_delete("Pod", item) for item in there), node]
            case "delete-members":
                return [_delete("Pod", item) for item in pods if _group_of(item) == step["name"]]
            case "start-bound-pods":
                bound = [item for item in pods if item["spec"].get("nodeName")]
                return [_started(item) for item in bound if "startTime" not in item["status"]]
            case "keep-waiting-groups":
                return await self._all_but(step["count"], pods)
        return None

    async def _dispensable(self, pods: list[Raw]) -> list[Raw]:
        """Not the waiting members of gangs that need all they have (docs/differences.md)."""
        groups = {item["metadata"]["name"]: item for item in await self.admin.list("PodGroup")}
        sizes = Counter(_group_of(item) for item in pods)

        def is_needed(item: Raw) -> bool:
            found = groups.get(_group_of(item))
            least = (
                0 if found is None else found["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0)
            )
            return not item["spec"].get("nodeName") and sizes[_group_of(item)] <= least

        return [item for item in pods if not is_needed(item)]

    async def _of_units(self, pods: list[Raw]) -> list[Raw]:
        """The pods of groups that are evicted as one."""
        groups = [*await self.admin.list("PodGroup"), *await self.admin.list("CompositePodGroup")]
        units = {item["metadata"]["name"] for item in groups if "all" in item["spec"]["disruptionMode"]}
        parents = {
            item["metadata"]["name"]: item["spec"].get("parentCompositePodGroupName") for item in groups
        }
        return [item for item in pods if {_group_of(item), parents.get(_group_of(item))} & units]

    async def _all_but(self, count: int, pods: list[Raw]) -> list[Raw]:
        """Deletes the waiting members of all groups but so many.

        Which of several is tried first when there is room depends on the time. Gated members go last: without
        them the others would be tried.
        """
        groups = {item["metadata"]["name"]: item for item in await self.admin.list("PodGroup")}
        waiting: dict[str, list[Raw]] = {}
        for item in pods:
            found = groups.get(_group_of(item))
            if found is not None and not item["spec"].get("nodeName"):
                root = found["spec"].get("parentCompositePodGroupName") or found["metadata"]["name"]
                waiting.setdefault(root, []).append(item)
        for members in waiting.values():
            members.sort(key=lambda item: bool(item["spec"].get("schedulingGates")))
        return [_delete("Pod", item) for root in sorted(waiting)[count:] for item in waiting[root]]


def _key(item: Raw) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _group_of(pod: Raw) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))


def _delete(kind: str, item: Raw) -> Raw:
    meta = item["metadata"]
    return {"op": "delete", "kind": kind, "name": meta["name"], "namespace": meta["namespace"]}


def _started(item: Raw) -> Raw:
    """Sets the start time in place of a kubelet: the choice of victims depends on it."""
    meta = item["metadata"]
    minutes = zlib.crc32(meta["name"].encode()) % 10000
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    return {
        "op": "started",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "startTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
