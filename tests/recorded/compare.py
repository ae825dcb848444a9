"""When a decision agrees with the recorded one; `conformance/README.md` describes each field.

    python -m tests.recorded.compare VECTORS.jsonl.gz DECISIONS.jsonl

Fields are compared by meaning and not by spelling: the order of reasons and of nodes
does not matter, a plugin whose scores are all 0 is as good as one left out, and where several nodes are
equally good to preempt on, any of them is right.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Result = Mapping[str, Any]
"""The result for one pod, recorded or computed: JSON, as `conformance/README.md` lists it."""

_PLACEMENT = re.compile(r"(found a potential placement for pod on node )\S+(, preempting )")


class Difference(NamedTuple):
    """One place where a decision departs from the recorded one."""

    field: str
    want: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.field}\n    want {_shortened(self.want)}\n    got  {_shortened(self.got)}"


def differences(want: Result, got: Result) -> Iterator[Difference]:
    """Yield all that differs and matters, in the order in which a scheduling cycle comes to it."""
    if "error" in want:
        # The texts of errors are Go's own; that the attempt ended in one is what counts.
        if not got.get("error"):
            yield Difference("error", want["error"], got.get("error"))
        return
    yield from _filter_differences(want, got)
    yield from _by_key("nodeStatus", _statuses(want.get("nodeStatus")), _statuses(got.get("nodeStatus")))
    yield from _unordered("feasible", want, got)
    yield from _score_differences(want, got)
    yield from _plain("total", want.get("total") or {}, got.get("total") or {})
    yield from _unordered("best", want, got)
    for field in ("fitError", "fitErrorFull"):
        yield from _plain(field, _named(want.get(field), want, got), got.get(field))
    preemption = want.get("preemption")
    if preemption:
        preemption = {**preemption, "message": _named(preemption.get("message"), want, got)}
    yield from _preemption_differences(preemption, got.get("preemption"))


def _named(text: str | None, want: Result, got: Result) -> str | None:
    """The recorded text with this node, if that is as good: v1.37 names the node that a preemption chose."""
    chosen = (got.get("preemption") or {}).get("nominatedNode")
    if not text or chosen not in ((want.get("preemption") or {}).get("chosenTies") or ()):
        return text
    return _PLACEMENT.sub(lambda found: f"{found[1]}{chosen}{found[2]}", text)


def _filter_differences(want: Result, got: Result) -> Iterator[Difference]:
    # Upstream does not call a Filter whose PreFilter skipped or rejected; its status here is unknown there.
    uncalled = {*(want.get("filterSkipped") or ()), *(want.get("filterNotRun") or ())}
    wanted = want.get("filter") or {}
    given = {plugin: nodes for plugin, nodes in (got.get("filter") or {}).items() if plugin not in uncalled}
    for plugin in sorted({*wanted, *given}):
        yield from _by_key(f"filter/{plugin}", _statuses(wanted.get(plugin)), _statuses(given.get(plugin)))


def _score_differences(want: Result, got: Result) -> Iterator[Difference]:
    wanted, given = want.get("score") or {}, got.get("score") or {}
    for plugin in sorted({*wanted, *given}):
        yield from _by_key(
            f"score/{plugin}", _weighted(wanted.get(plugin)), _weighted(given.get(plugin)), absent=0
        )


def _preemption_differences(want: Result | None, got: Result | None) -> Iterator[Difference]:
    if not want or not got:
        if want or got:
            yield Difference("preemption", want, got)
        return
    for field in ("eligible", "message"):
        yield from _plain(f"preemption/{field}", want.get(field), got.get(field))
    yield from _by_key("preemption/candidates", want.get("candidates") or {}, got.get("candidates") or {})
    if want.get("nominatedNode"):
        right = want.get("chosenTies") or [want["nominatedNode"]]
        if got.get("nominatedNode") not in right:
            yield Difference("preemption/nominatedNode", right, got.get("nominatedNode"))


def _statuses(nodes: Mapping[str, Result] | None) -> dict[str, Result]:
    return {
        node: {
            "plugin": status.get("plugin"),
            "code": status.get("code"),
            "reasons": sorted(status.get("reasons") or ()),
        }
        for node, status in (nodes or {}).items()
    }


def _weighted(scores: Result | None) -> dict[str, int]:
    if scores is None:
        return {}
    return {node: score * scores["weight"] for node, score in scores["normalized"].items()}


def _by_key(
    field: str, want: Mapping[str, Any], got: Mapping[str, Any], absent: Any = None
) -> Iterator[Difference]:
    for key in sorted({*want, *got}):
        yield from _plain(f"{field}/{key}", want.get(key, absent), got.get(key, absent))


def _unordered(field: str, want: Result, got: Result) -> Iterator[Difference]:
    yield from _plain(field, sorted(want.get(field) or ()), sorted(got.get(field) or ()))


def _plain(field: str, want: Any, got: Any) -> Iterator[Difference]:
    if want != got:
        yield Difference(field, want, got)


def _shortened(value: Any, length: int = 300) -> str:
    text = json.dumps(value)
    return text if len(text) <= length else f"{text[:length]}…"


class Disagreement(NamedTuple):
    """A pod whose decision differs."""

    scenario: str
    pod: str
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        shown = [f"  {difference}" for difference in self.differences[:4]]
        more = len(self.differences) - len(shown)
        return "\n".join([f"{self.scenario} {self.pod}:", *shown, *([f"  and {more} more"] if more else [])])


def read_lines(path: Path) -> Iterator[Any]:
    """The JSON values of a file that has one a line, compressed or not."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield msgspec.json.decode(line)


def compare(vector: Mapping[str, Any], decision: Mapping[str, Any] | None) -> Iterator[Disagreement]:
    """Yield the pods of one scenario that were decided otherwise, or not at all."""
    given = {result["pod"]: result for result in (decision or {}).get("results", ())}
    for want in vector["expect"]:
        got = given.get(want["pod"])
        found = tuple(differences(want, got)) if got else (Difference("missing", "a decision", None),)
        if found:
            yield Disagreement(vector["scenario"]["name"], want["pod"], found)


def summarise(disagreements: Iterable[Disagreement], pods: int, show: int = 5) -> str:
    """The first few disagreements in full, and how many there are."""
    found = list(disagreements)
    return "\n".join([*map(str, found[:show]), f"{pods - len(found)} passed, {len(found)} failed"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare decisions with recorded ones, pod by pod.")
    parser.add_argument("vectors", type=Path)
    parser.add_argument("decisions", type=Path)
    parser.add_argument("--show", type=int, default=5, help="how many pods that differ to show")
    arguments = parser.parse_args()
    decisions = {decision["name"]: decision for decision in read_lines(arguments.decisions)}
    pods = 0
    found: list[Disagreement] = []
    for vector in read_lines(arguments.vectors):
        pods += len(vector["expect"])
        found.extend(compare(vector, decisions.get(vector["scenario"]["name"])))
    print(summarise(found, pods, arguments.show))
    return 1 if found or not pods else 0


if __name__ == "__main__":
    sys.exit(main())
