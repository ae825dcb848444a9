"""How podFailurePolicy, successPolicy and the limits of each index end a Job.

Functions over plain values, after pkg/controller/job of kube-controller-manager: pod_failure_policy.go,
success_policy.go and backoff_utils.go. `embedded/controllers/job.py` carries out what they decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from bayplan.api.meta import Content

FAIL_JOB: Final = "FailJob"
FAIL_INDEX: Final = "FailIndex"
IGNORE: Final = "Ignore"
COUNT: Final = "Count"

MAX_INDEXES: Final = 1_000_000
"""Of the completed ones that are counted; kube-apiserver limits jobs with indexes to 100,000 pods at once."""
_INDEX: Final = re.compile(r"[0-9]{1,10}")


class FailedPod(NamedTuple):
    """The action of a policy for a failed pod."""

    action: str
    message: str = ""
    """Which rule matched, and why."""


def failed_pod_action(spec: Content, pod: Content) -> FailedPod:
    """The action of the first rule of podFailurePolicy that matches; without one the failure is counted."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        action = rule.get("action", "")
        if action == FAIL_INDEX and spec.get("backoffLimitPerIndex") is None:
            continue
        at = f"matching {action} rule at index {number}"
        status = pod.get("status") or {}
        if rule.get("onExitCodes") is not None:
            for container, code in _exit_codes(status, rule["onExitCodes"]):
                return FailedPod(
                    action, f"Container {container} for pod {name} failed with exit code {code} {at}"
                )
        else:
            for condition in _conditions(status, rule.get("onPodConditions") or ()):
                return FailedPod(action, f"Pod {name} has condition {condition} {at}")
    return FailedPod(COUNT)


def _exit_codes(status: Content, wanted: Content) -> Iterator[tuple[str, int]]:
    """Failed containers whose exit codes match."""
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    for each in statuses:
        terminated = (each.get("state") or {}).get("terminated")
        code = (terminated or {}).get("exitCode", 0)
        if not code or wanted.get("containerName") not in (None, "", each["name"]):
            continue
        if (code in wanted["values"]) is (wanted["operator"] == "In"):
            yield each["name"], code


def _conditions(status: Content, wanted: Collection[Content]) -> Iterator[str]:
    """Types of conditions that match a pattern."""
    for condition in status.get("conditions") or ():
        for pattern in wanted:
            if (condition["type"], condition["status"]) == (pattern["type"], pattern.get("status", "True")):
                yield condition["type"]


def met_success_rule(spec: Content, succeeded: Collection[int]) -> int | None:
    """The first rule of successPolicy that the succeeded indexes meet."""
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        wanted, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if wanted is None:
            if count is not None and len(succeeded) >= count:
                return number
            continue
        indexes = parse_indexes(wanted, spec["completions"])
        if len(indexes.intersection(succeeded)) >= (len(indexes) if count is None else count):
            return number
    return None


def index_failure(spec: Content, failed: Collection[int], succeeded: int) -> tuple[str, str] | None:
    """Why failed indexes end the job: there are too many, or no other is left."""
    limit = spec.get("maxFailedIndexes")
    if limit is not None and len(failed) > limit:
        return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
    if failed and len(failed) + succeeded >= spec["completions"]:
        return "FailedIndexes", "Job has failed indexes"
    return None


# Indexes


def parse_indexes(text: str, completions: int) -> set[int]:
    """`1,3-5` as numbers below `completions`. What is not a number is ignored: clients can write a status."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        low, high = parse_index(first), parse_index(last or first)
        if low is not None and high is not None:
            found.update(range(low, min(high + 1, completions, low + MAX_INDEXES - len(found))))
    return found


def parse_index(text: str) -> int | None:
    """The number in a text, None if there is none, or one that no job can have."""
    return int(text) if _INDEX.fullmatch(text) else None


def indexes_text(indexes: set[int]) -> str:
    """Numbers as `1,3-5`; two neighbours are a range, too."""
    parts: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1] = parts[-1][0], index
        else:
            parts.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
