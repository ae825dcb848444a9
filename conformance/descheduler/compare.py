"""Compares results with the recorded ones: `--strict --order` of the script that came with the recordings.

Where upstream's result depends on the order of a Go map, a result is right if it is one of those recorded.
"""

from __future__ import annotations

from typing import Any

_FIELDS = ("classes", "totalEvicted", "evictionRequests", "events")


def difference(expected: dict[str, Any], got: dict[str, Any]) -> str:
    """What is wrong with a result; "" if it is right."""
    if "verdicts" in expected:
        return _unequal(expected["verdicts"], got.get("verdicts"), default={"checks": ""})
    if "nodeFit" in expected:
        return _node_fit(expected, got)
    if expected.get("stage"):
        return _stage(expected, got)
    if "cycles" not in got:
        return f"no cycles: {got}"
    runs = expected["runs"]
    if expected["determinism"] not in ("ordered", "set"):
        found = any(_key(run, False) == _key(got, False) for run in runs)
        return "" if found else f"{_key(got, False)} is none of {len(runs)} outcomes"
    if runs[0].get("panic"):
        return "upstream crashes" if any(cycle["evictions"] for cycle in got["cycles"]) else ""
    order = expected["determinism"] == "ordered"
    if _key(runs[0], order) != _key(got, order):
        return f"{_key(got, order)} instead of {_key(runs[0], order)}"
    for i, (ours, theirs) in enumerate(zip(got["cycles"], runs[0]["cycles"], strict=True)):
        for name in _FIELDS:
            left, right = _comparable(name, ours.get(name)), _comparable(name, theirs.get(name))
            if left != right:
                return f"cycle {i}: {name}: {left} instead of {right}"
    if "metrics" in runs[0] and runs[0]["metrics"] != got.get("metrics"):
        return "metrics"
    return ""


def _unequal(expected: dict[str, Any], got: Any, default: dict[str, Any]) -> str:
    for key, value in expected.items():
        if {**default, **value} != (got or {}).get(key):
            return f"{key}: {(got or {}).get(key)} instead of {value}"
    return ""


def _node_fit(expected: dict[str, Any], got: dict[str, Any]) -> str:
    for pod, nodes in expected["nodeFit"].items():
        for node, text in nodes.items():
            if got["nodeFit"][pod].get(node) not in text.split(" | "):
                return f"{pod} on {node}: {got['nodeFit'][pod].get(node)!r} instead of {text!r}"
    return "" if expected["fits"] == got["fits"] else "fits"


def _stage(expected: dict[str, Any], got: dict[str, Any]) -> str:
    if got.get("stage") != expected["stage"]:
        return f"{got} instead of {expected}"
    if expected["stage"] == "ok":
        same = got.get("effective") == expected.get("effective")
        return "" if same else f"{got.get('effective')} instead of {expected.get('effective')}"
    texts = expected.get("errorAlternatives") or [expected["error"]]
    return "" if got.get("error") in texts else f"{got.get('error')!r} instead of {texts[0]!r}"


def _key(run: dict[str, Any], order: bool) -> list[Any]:
    found = []
    for cycle in run["cycles"]:
        evictions = [
            (one["pod"], one.get("profile", ""), one.get("strategy", ""), one.get("result", "ok"))
            for one in cycle.get("attempts", cycle.get("evictions")) or ()
        ]
        errors = cycle.get("errors") or []
        found.append((evictions if order else sorted(evictions), errors, bool(cycle.get("skipped"))))
    return found


def _comparable(name: str, value: Any) -> Any:
    if name == "events":
        fields = ("pod", "type", "reason", "action", "note")
        return sorted(tuple(event[field] for field in fields) for event in value or ())
    return value or None
