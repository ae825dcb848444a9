"""Compares results of cluster-level scheduling with the recorded ones of Karmada.

    python -m conformance.clusters.compare VECTORS.jsonl.gz RESULTS.jsonl [--strict] [--order] [--show N]

RESULTS has one JSON object per line, `{"id": …, "result": {…}}`; the result has the keys of `expect` that
the README lists for the kind of vector.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from conformance.reference.__main__ import read_vectors

Json = Mapping[str, Any]

NO_FIT = re.compile(r"0/(\d+) clusters are available: (.*)\.", re.S)


def possible_no_fit(
    text: str,
    recorded: Sequence[str],
    rejected: Mapping[str, Sequence[str]] | None,
    deleting: Collection[str],
) -> bool:
    """Whether choosing one recorded reason for every rejected cluster can give this text."""
    if text in recorded:
        return True
    got, ref = NO_FIT.fullmatch(text), NO_FIT.fullmatch(recorded[0])
    if not got or not ref or got[1] != ref[1] or not rejected:
        return False
    parts = got[2].split(", ")
    if parts != sorted(parts):
        return False
    room: dict[str, int] = {}
    for part in parts:
        count, _, reason = part.partition(" ")
        if not count.isdigit() or reason in room:
            return False
        room[reason] = int(count)
    clusters = {n: {r.split(": ", 1)[1] for r in rs} for n, rs in rejected.items() if n not in deleting}
    if sum(room.values()) != len(clusters):
        return False
    used: dict[str, list[str]] = {r: [] for r in room}

    def place(name: str, seen: set[str]) -> bool:
        for reason in clusters[name]:
            if reason not in room or reason in seen:
                continue
            seen.add(reason)
            if len(used[reason]) < room[reason]:
                used[reason].append(name)
                return True
            for other in list(used[reason]):
                if place(other, seen):
                    used[reason].remove(other)
                    used[reason].append(name)
                    return True
        return False

    return all(place(n, set()) for n in clusters)


def quantity(text: str) -> Fraction:
    m = re.fullmatch(r"([+-]?[0-9.]+)(.*)", str(text))
    assert m is not None
    suffix = m[2]
    binary = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
    decimal = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    if suffix in binary:
        return Fraction(m[1]) * (1 << binary[suffix])
    if suffix in decimal:
        return Fraction(m[1]) * Fraction(f"1e{decimal[suffix]}")
    return Fraction(m[1]) * Fraction(f"1e{int(suffix[1:])}")


def differences(vector: Json, result: Json, order: bool = False) -> list[str]:
    """What differs from the recorded result; empty if nothing does."""
    want, kind = vector["expect"], vector["kind"]
    out: list[str] = []

    def same(key: str, default: Any = None) -> None:
        if result.get(key, default) != want.get(key, default):
            out.append(f"{key}: got {result.get(key, default)!r}, want {want.get(key, default)!r}")

    if kind == "schedule":
        if "clusters" in want:
            same("clusters")
            same("components")
            if order and "order" in want:
                same("order")
        elif "clusters" in result:
            out.append(f"got a result {result['clusters']!r}, want error {want['error'][0]!r}")
        else:
            same("reason")
            text = result.get("error", "")
            text = text[0] if isinstance(text, list) else text
            if want["reason"] == "NoClusterFit":
                gone = {
                    c["metadata"]["name"]
                    for c in vector["input"]["clusters"]
                    if "deletionTimestamp" in c["metadata"]
                }
                if not possible_no_fit(text, want["error"], want.get("rejected"), gone):
                    out.append(f"error: got {text!r}, want one of {want['error']!r}")
            elif text not in want["error"]:
                out.append(f"error: got {text!r}, want {want['error'][0]!r}")
    elif kind == "select":
        same("selected")
        same("error")
        for key in ("sorted", "regionScores"):
            if key in result and key in want:
                same(key)
    elif kind == "flow":
        for key in (
            "clusters",
            "observedAffinity",
            "observedGeneration",
            "lastScheduledTimeChanged",
            "condition",
            "retry",
            "appliedPlacementChanged",
        ):
            if key in result or key in ("clusters", "observedAffinity"):
                same(key)
        if "texts" in result:
            out += [
                f"text {text!r} is not among {want['texts']!r}"
                for text in result["texts"]
                if text not in want["texts"] and "clusters are available: " not in text
            ]
    elif kind == "summary":
        got, ref = result["resourceSummary"], want["resourceSummary"]
        for key in ("allocatable", "allocated", "allocating"):
            a = {k: quantity(v) for k, v in (got.get(key) or {}).items()}
            b = {k: quantity(v) for k, v in (ref.get(key) or {}).items()}
            if a != b:
                out.append(f"{key}: got {got.get(key)!r}, want {ref.get(key)!r}")
        models = [one.get("allocatableModelings") or [] for one in (got, ref)]
        if models[0] != models[1]:
            out.append(f"allocatableModelings: got {models[0]!r}, want {models[1]!r}")
    else:
        for key in want:
            same(key)
    return out


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument(
        "vectors", nargs="+", help="vectors (.jsonl.gz), then the results (.jsonl) as the last argument"
    )
    ap.add_argument("--strict", action="store_true", help="also count vectors marked goSort")
    ap.add_argument(
        "--order", action="store_true", help="also compare the order of the result where it is deterministic"
    )
    ap.add_argument("--show", type=int, default=5, metavar="N", help="show N differences of each category")
    args = ap.parse_args()
    *paths, results = args.vectors
    got = {r["id"]: r["result"] for r in read_vectors(results)}
    total: dict[str, int] = {}
    bad: dict[str, int] = {}
    shown: dict[str, int] = {}
    missing = 0
    for path in paths:
        for v in read_vectors(path):
            if v.get("goSort") and not args.strict:
                continue
            c = v["category"]
            total[c] = total.get(c, 0) + 1
            if v["id"] not in got:
                missing += 1
                diff = ["no result"]
            else:
                diff = differences(v, got[v["id"]], args.order)
            if diff:
                bad[c] = bad.get(c, 0) + 1
                shown[c] = shown.get(c, 0) + 1
                if shown[c] <= args.show:
                    print(f"{v['id']}: " + "; ".join(diff))
    width = max(map(len, total), default=8)
    for c in total:
        print(f"{c:{width}} {total[c] - bad.get(c, 0):5} of {total[c]:5} equal")
    n = sum(total.values())
    print(f"{n - sum(bad.values())} of {n} equal" + (f", {missing} without a result" if missing else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
