"""Jobs whose pods are numbered: which numbers are done, and how a pod learns its own."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from bayplan.embedded.server.documents import Content

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
MAX_INDEXES: Final = 1_000_000
"""Of the completed ones that are counted; kube-apiserver limits jobs with indexes to 100,000 pods at once."""
_INDEX: Final = re.compile(r"[0-9]{1,10}")
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


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


def missing_indexes(completions: int, taken: set[int], count: int) -> list[int]:
    """The lowest numbers for which there is no pod."""
    return list(islice((index for index in range(completions) if index not in taken), count))


def indexed_pod(pod: Content, job: Content, index: int) -> Content:
    """A job's pod with its number: as annotation, label, host name and variable."""
    meta, name = pod["metadata"], f"{job['metadata']['name']}-{index}"
    meta["generateName"] = f"{name}-"
    for field in ("annotations", "labels"):
        meta[field] = {**(meta.get(field) or {}), COMPLETION_INDEX: str(index)}
    spec = pod["spec"]
    spec.setdefault("hostname", name)
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    variable = {"name": _VARIABLE, "valueFrom": source}
    spec["containers"] = [
        {**container, "env": [*(container.get("env") or ()), variable]} for container in spec["containers"]
    ]
    return pod
