"""What the commands about a fleet print: tables for people, and the same as plain values for JSON.

Every sentence is derived from the run that decided (`karmada.schedule.Result`) or from what a member's
scheduler answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from bayplan.answers.explain.tables import number
from bayplan.answers.sources.loaded import Origin
from bayplan.fleet.karmada.schedule import Result
from bayplan.fleet.members import Member, Unreachable
from bayplan.fleet.placing import PlacedWorkload
from bayplan.fleet.room import Room

Row = tuple[str, ...]


def age_text(age: timedelta | None) -> str:
    """How old a snapshot is, in its largest unit."""
    if age is None:
        return "age unknown"
    seconds = max(0, int(age.total_seconds()))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length or unit == "second":
            return f"{number(seconds // length, unit)} old"
    raise AssertionError("seconds are the last unit")


def member_text(member: Member) -> str:
    """One line about a member: what was read, and how old it is."""
    counts = f"{number(len(member.cluster.nodes), 'node')}, {number(member.cluster.pod_count, 'pod')}"
    match member.origin:
        case Origin.LIVE:
            return f"{member.name}: {counts}; live"
        case Origin.SNAPSHOT:
            return f"{member.name}: {counts}; snapshot, {age_text(member.age())}"
        case _:
            return f"{member.name}: {counts}; files, age unknown"


def room_text(room: Room) -> str:
    return f"{room.exact:,}" if room.is_limit else f"{room.exact:,} or more"


SHARE_COLUMNS = ("cluster", "replicas", "was", "pending", "fit", "Karmada", "why Karmada's number differs")
RIGHT = ("replicas", "was", "pending", "fit", "Karmada")


def share_rows(placed: PlacedWorkload) -> Iterator[Row]:
    """One row for each member: the replicas that it gets, and those that fit."""
    for name, room in placed.rooms.items():
        share = placed.shares.get(name)
        yield (
            name,
            "–" if share is None else f"{share.replicas:,}",
            f"{room.previous:,}",
            "–" if share is None else f"{share.pending:,}",
            room_text(room),
            f"{room.general:,}",
            room.explained,
        )
    for name in placed.refused:
        yield name, "–", "–", "–", "0", "–", "the API server would reject it"


def headline(placed: PlacedWorkload) -> str:
    """Whether a workload fits, in one line."""
    what = f"{placed.kind} {placed.key}: {number(placed.replicas, 'replica')}"
    group = f", affinity group {placed.affinity_group}" if placed.affinity_group else ""
    if placed.result.reason is not None:
        return f"{what}: not placed{group}: {placed.result.error}"
    division = placed.result.division
    rule = f" ({division.rule}{f', {division.mode}' if division.mode else ''})" if division else ""
    if placed.pending:
        return f"{what}: {placed.pending:,} would stay pending{rule}{group}"
    return f"{what}: all fit{rule}{group}"


def details(placed: PlacedWorkload) -> Iterator[str]:
    """Why replicas are pending, why the next one would not fit, and what Karmada would do."""
    for name, why in placed.refused.items():
        yield f"{name} would reject it: {why}"
    for name, share in placed.shares.items():
        for reason, count in share.reasons.items():
            yield f"{name}: {count:,} pending: {reason}"
        if share.evicted:
            yield f"{name}: {number(len(share.evicted), 'pod')} of lower priority would be evicted"
    for name, room in placed.rooms.items():
        if room.is_limit and room.next_lacks:
            yield f"{name}: replica {room.exact + 1:,} would not fit: {room.next_lacks}"
    for name in placed.unread:
        yield f"{name}: not read, so Karmada's estimate was used for it"
    if placed.attempt is not None:
        if not placed.attempt.trigger:
            why = placed.attempt.ignored or "its replicas add up"
            yield f"karmada-scheduler does not schedule the binding again: {why}"
            return
        yield f"karmada-scheduler schedules the binding again: {placed.attempt.trigger}"
        if not placed.attempt.is_scheduled and not placed.attempt.targets:
            yield "karmada-scheduler would remove it from all clusters, because none is feasible"
    yield from _by_estimate(placed)


def _by_estimate(placed: PlacedWorkload) -> Iterator[str]:
    estimated = placed.by_estimate
    if estimated.reason is not None:
        if placed.result.reason is None:
            yield f"Karmada's estimates would not place it: {estimated.error}"
        return
    if estimated.replicas == placed.result.replicas:
        return
    division = ", ".join(f"{name} {count:,}" for name, count in sorted(estimated.replicas.items()))
    lost = placed.pending_by_estimate()
    pending = "".join(f"; {count:,} would stay pending in {name}" for name, count in lost.items())
    yield f"Karmada's estimates would divide it differently: {division}{pending}"


# fleet explain


def explain_rows(placed: PlacedWorkload, result: Result) -> Iterator[Row]:
    """What each step found for each cluster: reasons, score, room, whether it was selected, its weight."""
    names, candidates = placed.table.names, result.candidates
    position = {} if candidates is None else {int(row): place for place, row in enumerate(candidates.rows)}
    selection, division = result.selection, result.division
    selected = () if selection is None else selection.selected
    for row, name in enumerate(names):
        reasons = [f"{plugin}: {reason}" for plugin, reason in result.filtered.reasons(row)]
        if placed.table.deleting[row]:
            reasons.append("it is being deleted")
        if reasons or candidates is None or result.room is None or row not in position:
            yield name, "rejected", "", "", "", "", "", "; ".join(reasons)
            continue
        place = position[row]
        weight = None if division is None else division.weights.get(name)
        count = result.replicas.get(name)
        yield (
            name,
            "selected" if place in selected else "not selected",
            f"{int(candidates.tiers[place]):,}",
            f"{int(candidates.scores[place]):,}",
            f"{int(result.room.more[place]):,}",
            f"{int(candidates.available[place]):,}",
            "" if weight is None else f"{weight:,}",
            "" if count is None else f"{number(count, 'replica')}",
        )


EXPLAIN_COLUMNS = ("cluster", "result", "tier", "score", "more", "in all", "weight", "replicas or reasons")
EXPLAIN_RIGHT = ("tier", "score", "more", "in all", "weight")


def steps(result: Result) -> Iterator[str]:
    """How the clusters were selected and the replicas divided."""
    selection, division = result.selection, result.division
    if selection is not None:
        match selection.rule:
            case "region" if selection.regions:
                scores = ", ".join(f"{name} {score:,}" for name, score in selection.region_scores.items())
                yield f"regions {', '.join(selection.regions)} were chosen; scores: {scores}"
            case "cluster" if not selection.error:
                yield f"the spread constraint selects {number(len(selection.selected), 'cluster')}"
    if division is None or division.error:
        return
    match division.rule, division.mode:
        case "duplicated", _:
            yield "every selected cluster gets all replicas; room is not compared"
        case "static weights", _:
            yield "replicas are divided by the weights of the policy; room is not compared"
        case _, "unchanged":
            yield "the existing replicas add up, so nothing moves"
        case rule, mode:
            unit = {"scale up": "the new replicas are", "scale down": "what is left is"}.get(
                mode, "all replicas are"
            )
            fewest = ", among as few clusters as have room" if rule == "aggregated" else ""
            by = "the existing replicas" if mode == "scale down" else "room"
            yield f"{unit} divided in proportion to {by}{fewest}"


# JSON


def placed_json(placed: PlacedWorkload) -> dict[str, object]:
    result = placed.result
    return {
        "kind": placed.kind,
        "object": placed.key,
        "replicas": placed.replicas,
        "fits": placed.fits,
        "error": result.error,
        "affinityGroup": placed.affinity_group,
        "placement": msgspec.to_builtins(placed.placement),
        "clusters": [_cluster_json(placed, name) for name in (*placed.rooms, *placed.refused)],
        "byEstimate": {
            "clusters": placed.by_estimate.replicas,
            "error": placed.by_estimate.error,
            "pending": placed.pending_by_estimate(),
        },
        "staticWeightList": placed.static_weights(),
        "notRead": list(placed.unread),
        "karmadaTrigger": None if placed.attempt is None else placed.attempt.trigger,
        "karmadaIgnores": None if placed.attempt is None else placed.attempt.ignored,
        "karmadaClusters": None
        if placed.attempt is None
        else {one.name: one.replicas for one in placed.attempt.targets},
        "failures": list(placed.failures),
        "warnings": [warning.as_json() for warning in placed.warnings],
    }


def _cluster_json(placed: PlacedWorkload, name: str) -> dict[str, object]:
    if name in placed.refused:
        return {"name": name, "refused": placed.refused[name]}
    row, share = placed.table.row_of[name], placed.shares.get(name)
    found: dict[str, object] = {
        "name": name,
        "replicas": 0 if share is None else share.replicas,
        "room": placed.rooms[name].as_json(),
        "rejectedBy": [
            {"plugin": plugin, "reason": reason} for plugin, reason in placed.result.filtered.reasons(row)
        ],
    }
    if share is not None:
        found |= {
            "pending": share.pending,
            "reasons": dict(share.reasons),
            "nodes": dict(share.nodes),
            "evicted": list(share.evicted),
        }
    return found


def members_json(members: Sequence[Member], missing: Sequence[Unreachable]) -> list[dict[str, object]]:
    known: list[dict[str, object]] = []
    for one in members:
        age = one.age()
        known.append(
            {
                "name": one.name,
                "source": one.origin.value,
                "nodes": len(one.cluster.nodes),
                "pods": one.cluster.pod_count,
                "ageSeconds": None if age is None else int(age.total_seconds()),
                "warnings": [warning.as_json() for warning in one.warnings],
            }
        )
    unread: list[dict[str, object]] = [{"name": one.name, "error": one.error} for one in missing]
    return known + unread
