"""Jobs whose pods are numbered: which numbers are done, and how a pod learns its own."""

from __future__ import annotations

from itertools import islice
from typing import Final

from bayplan.embedded.server.documents import Content

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_VARIABLE: Final = "JOB_COMPLETION_INDEX"


def parse_indexes(text: str) -> set[int]:
    """`1,3-5` as numbers."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


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
