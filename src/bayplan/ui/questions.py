"""Explanations, what-if answers and comparisons on a state of the history.

The answers are those of `bayplan explain`, `whatif` and `compare`: the same functions on the same typed
objects. A decision is explained on the state that its scheduler saw, so that nothing has to be recorded when
it is made. Everything here is computed in a thread, on objects that never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from bayplan.answers.capacity_queues import QueueQuestions
from bayplan.answers.explain.questions import PodAnswer, PodQuestions, explain_node, requeue_events
from bayplan.answers.explain.report import node_report, pod_report
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.answers.whatif import Cluster, Outcome
from bayplan.answers.whatif.comparison import Variant, Workload, compare, from_scratch
from bayplan.answers.whatif.machines import usual_node
from bayplan.answers.whatif.scaling import scale_and_count
from bayplan.api.documents import parse_documents
from bayplan.api.node import Node
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE, RELEASES, Release
from bayplan.config import KubeSchedulerConfiguration, default_catalog, default_config, parse_config
from bayplan.config.model import PluginRef, Profile
from bayplan.errors import InputError
from bayplan.framework.plugin_api import Plugin
from bayplan.process.history import Attempt, Change, History, Objects

MAX_SCORED: Final = 10
"""Nodes whose scores are shown."""
MAX_NAMED: Final = 30
"""Nodes and candidates that are named where there may be thousands."""
MAX_PLACED: Final = 500
MAX_FORECAST: Final = 20
"""Groups of pending pods that are evaluated because no decision of a scheduler is known."""
MAX_CHANGES: Final = 1000
MAX_TEXT: Final = 1_000_000
"""Characters of a pasted manifest or configuration."""
MAX_NODES: Final = 10_000
LATE_SECONDS: Final = 1.0
"""A watch is expected to deliver an object within this time."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the page shows: where it comes from, and the scheduler's settings for it."""

    name: str
    kind: str
    """`cluster` (the embedded one), `live`, `files`, `simulation` or `recording`."""
    release: Release = DEFAULT_RELEASE
    config: KubeSchedulerConfiguration | None = None
    plugins: tuple[type[Plugin], ...] = ()
    origin: Origin = Origin.LIVE
    listed: frozenset[str] = frozenset()
    server_version: str = ""
    warnings: tuple[Warning, ...] = ()
    reload: Callable[[Release], LoadedCluster] | None = None
    """As in `LoadedCluster`."""

    def loaded(self, objects: Objects) -> LoadedCluster:
        return LoadedCluster(
            self.name,
            tuple(objects.values()),
            config=self.config,
            source=self.name,
            plugins=self.plugins,
            origin=self.origin,
            listed=self.listed,
            server_version=self.server_version,
            release=self.release,
            warnings=self.warnings,
            reload=self.reload,
        )

    @property
    def settings(self) -> KubeSchedulerConfiguration:
        return self.config or default_config(release=self.release)


class Questions:
    """Answers about one state. `objects` is not changed."""

    def __init__(self, subject: Subject, objects: Objects) -> None:
        self.subject = subject
        self.objects = objects
        self.loaded = subject.loaded(objects)
        self._pods: PodQuestions | None = None

    @property
    def pods(self) -> PodQuestions:
        if self._pods is None:
            self._pods = PodQuestions(self.loaded)
        return self._pods

    @cached_property
    def capacity(self) -> QueueQuestions | None:
        """The capacity queues; None if the configuration has none.

        Raises:
            ConfigError: the configuration of the queues is invalid.
        """
        settings = self.subject.settings.bayplan.queues
        return None if settings is None else QueueQuestions(self.loaded, settings)

    def pod(self, key: str) -> dict[str, Any]:
        """The explanation of a pod, and its decision in the form of `decision`."""
        answer = self.pods.answer(self.pods.pod(key))
        return self._report(answer)

    def decision(self, pod: Pod) -> dict[str, Any]:
        """How the scheduler decides about a pod on this state. It has no node in it."""
        spec = replace(pod.spec, node_name="")
        return self._report(self.pods.answer(replace(pod, spec=spec)))

    def _report(self, answer: PodAnswer) -> dict[str, Any]:
        report = pod_report(self.loaded, answer, {})
        result = report.get("result")
        if result is not None:
            result["feasible"] = len(result.pop("feasibleNodes"))
            result["scores"] = result["scores"][:MAX_SCORED]
            for group in result["rejections"]:
                group["nodes"] = group["nodes"][:MAX_NAMED]
            if result["preemption"] is not None:
                found = result["preemption"]["candidates"]
                result["preemption"]["candidateCount"] = len(found)
                result["preemption"]["candidates"] = found[:MAX_NAMED]
        requests = self.subject.release.accounting.assigned_requests(answer.pod)
        report |= {
            "priority": answer.pod.priority,
            "requests": requests,
            "funnel": self._funnel(answer),
            "table": _score_table(answer),
            "identicalPods": list(answer.identical)[:MAX_NAMED],
            "identicalCount": len(answer.identical),
        }
        return report

    def _funnel(self, answer: PodAnswer) -> list[dict[str, Any]]:
        """The number of nodes that are left after each filter, in the order in which filters run."""
        evaluated = answer.evaluated
        if evaluated is None or evaluated.explanation.error:
            return []
        explanation = evaluated.explanation
        by_plugin: dict[str, Counter[str]] = {}
        for status in explanation.node_status.values():
            by_plugin.setdefault(status.plugin, Counter())[", ".join(status.reasons)] += 1
        order = [step.name for step in evaluated.framework.profile.filters]
        names = sorted(by_plugin, key=lambda name: order.index(name) if name in order else -1)
        left, steps = len(explanation.nodes), list[dict[str, Any]]()
        for name in names:
            gone = by_plugin[name].total()
            left -= gone
            reasons = [{"reason": text, "nodes": count} for text, count in by_plugin[name].most_common(5)]
            steps.append({"plugin": name, "rejected": gone, "left": left, "reasons": reasons})
        return steps

    def fit(self, key: str) -> dict[str, Any]:
        """Which nodes a pod fits on; those that it does not fit on by the plugin that rejects them."""
        answer = self.pods.answer(self.pods.pod(key))
        explanation = answer.explanation
        if explanation is None:
            return {"pod": key, "reason": answer.reason, "feasible": [], "rejected": {}, "chosen": ""}
        rejected: dict[str, list[str]] = {}
        for node, status in explanation.node_status.items():
            rejected.setdefault(status.plugin, []).append(node)
        preemption = explanation.preemption
        return {
            "pod": key,
            "reason": explanation.error or explanation.fit_error_full,
            "feasible": list(explanation.feasible),
            "rejected": rejected,
            "chosen": explanation.chosen,
            "candidates": [] if preemption is None else list(preemption.candidates),
        }

    def node(self, name: str) -> dict[str, Any]:
        """The explanation of a node, with the requests of its pods."""
        answer = explain_node(self.pods, name)
        report = node_report(self.loaded, answer)
        requests = self.subject.release.accounting.assigned_requests
        for written, pod in zip(report["pods"], answer.pods, strict=True):
            written["requests"] = requests(pod)
            owner = pod.metadata.controller()
            written["owner"] = "" if owner is None else f"{owner.kind}/{owner.name}"
        for written, amounts in zip(report["resources"], answer.resources, strict=True):
            written["amounts"] = {
                "allocatable": amounts.allocatable,
                "requested": amounts.requested,
                "nominated": amounts.nominated,
                "releasing": amounts.releasing,
            }
        for group in report["pendingPods"]:
            group["count"], group["pods"] = len(group["pods"]), group["pods"][:MAX_NAMED]
        report["labels"] = answer.node.labels
        report["conditions"] = [
            {"type": one.type, "status": one.status, "reason": one.reason}
            for one in answer.node.status.conditions
        ]
        return report

    def waits_for(self, pod: Pod, plugins: Iterable[str]) -> list[dict[str, Any]]:
        """By plugin: the events after which the pod is tried again."""
        framework = self.pods.core.framework_for(pod)
        if framework is None:
            return []
        found = requeue_events(framework, plugins)
        return [{"plugin": name, "events": list(events)} for name, events in found.items()]

    def forecast(self, queue: dict[str, Any]) -> dict[str, Any]:
        """Adds to the groups of a queue without a known reason how their first pod would be decided now."""
        for group in [one for one in queue["groups"] if not one["reason"] and not one["node"]][:MAX_FORECAST]:
            if group["podGroup"]:
                group["reason"] = "decided together with the other members of its group"
                continue
            pod = self.pods.pod(group["pods"][0])
            if self.capacity is not None and (waiting := self.capacity.pod(pod)).waits:
                blocking = waiting.blocking
                group["forecast"] = waiting.problem if blocking is None else blocking.sentence()
                continue
            answer = self.pods.answer(pod)
            found = answer.explanation
            if found is None:
                group["forecast"] = answer.reason
            else:
                chosen = f"would go to {found.chosen}" if found.chosen else ""
                group["forecast"] = found.error or found.fit_error_full or chosen
        return queue

    # What if, and comparisons

    def what_if(self, changes: Sequence[Mapping[str, Any]], resources: Sequence[str]) -> dict[str, Any]:
        """What would happen after these changes: `bayplan whatif` on a copy."""
        if len(changes) > MAX_CHANGES:
            raise InputError(f"there are more than {MAX_CHANGES:,} changes")
        cluster = Cluster.from_loaded(self.loaded)
        before = _use(cluster, resources)
        pending = {
            one.key for one in self.objects.values() if isinstance(one, Pod) and not one.spec.node_name
        }
        made = Changes(cluster, self.subject)
        done = [made.make(change) for change in changes]
        budgets = cluster.drain_warnings()
        placed = cluster.schedule()
        after = _use(cluster, resources)
        fits = all(one.fits for one in placed if one.outcome is not Outcome.SKIPPED)
        # Pods that stay pending come last: they may be thousands, and nothing changes for them.
        pods = sorted(placed, key=lambda one: not one.fits and one.pod in pending)
        return {
            "changes": done,
            "fits": fits,
            "scheduled": len(placed.scheduled),
            "notScheduled": len(placed.not_scheduled),
            "stayPending": sum(one.pod in pending for one in placed.not_scheduled),
            "evicted": list(placed.evicted)[:MAX_PLACED],
            "evictedCount": len(placed.evicted),
            "moved": sum(bool(one.was_on) and bool(one.node) for one in placed),
            "pods": [one.as_json() for one in pods[:MAX_PLACED]],
            "podCount": len(pods),
            "blocked": [one.as_json() for one in budgets if one.reason is Reason.EVICTION_BLOCKED],
            "warnings": [one.as_json() for one in (*placed.warnings, *budgets)][:MAX_NAMED],
            "leftOut": [str(one) for one in cluster.left_out],
            "nodes": {name: use for name, use in after.items() if before.get(name) != use},
            "removedNodes": [name for name in before if name not in after],
            "totals": {
                one: {"now": _total(before, number), "then": _total(after, number)}
                for number, one in enumerate(resources)
            },
        }

    def compare(self, variants: Sequence[Mapping[str, Any]], *, scratch: bool) -> dict[str, Any]:
        """Configurations or versions on this cluster: `bayplan compare`."""
        made = [_variant(one, self.subject) for one in variants]
        objects = tuple(from_scratch(self.loaded.objects)) if scratch else tuple(self.loaded.objects)
        # One process: the page is no reason to start others, and plugins need not be importable.
        found = compare(Workload(objects, self.loaded.listed), made, jobs=1).as_json()
        differences = found.pop("differences")
        return {
            **found,
            "differenceCount": len(differences),
            "differences": dict(list(differences.items())[:MAX_PLACED]),
        }


class Changes:
    """Makes the changes of a request. The method for a type of change has its name."""

    def __init__(self, cluster: Cluster, subject: Subject) -> None:
        self._cluster = cluster
        self._subject = subject
        self._settings = subject.settings

    def make(self, change: Mapping[str, Any]) -> str:
        """Makes one change, and says what was done.

        Raises:
            InputError: it is malformed, or names something that is not there.
        """
        kind = change.get("type")
        methods: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "apply": self._apply,
            "scale": self._scale,
            "cordon": self._cordon,
            "drain": self._drain,
            "removeNode": self._remove_node,
            "addNodes": self._add_nodes,
            "weights": self._weights,
            "config": self._config,
        }
        method = methods.get(str(kind))
        if method is None:
            raise InputError(f"a change has one of the types {', '.join(methods)}, not {kind!r}")
        return method(change)

    def _apply(self, change: Mapping[str, Any]) -> str:
        text = _text(change, "manifest", MAX_TEXT)
        documents = [document.content for document in parse_documents(text.encode(), "the manifest")]
        applied = []
        for content in documents:
            applied += self._cluster.apply(
                content, replicas=_number(change, "replicas", None, MAX_NODES * 10)
            )
        counts = Counter(one.change for one in applied)
        summary = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        return f"apply a manifest: {summary or 'nothing in it'}"

    def _scale(self, change: Mapping[str, Any]) -> str:
        workload = _text(change, "workload")
        replicas = _number(change, "replicas", 0, MAX_NODES * 10) or 0
        return scale_and_count(self._cluster, workload, replicas)

    def _cordon(self, change: Mapping[str, Any]) -> str:
        self._cluster.cordon(_text(change, "node"))
        return f"cordon {change['node']}"

    def _drain(self, change: Mapping[str, Any]) -> str:
        count = len(self._cluster.drain(_text(change, "node")))
        return f"drain {change['node']}: {count:,} pods to place again"

    def _remove_node(self, change: Mapping[str, Any]) -> str:
        count = len(self._cluster.remove_node(_text(change, "node")))
        return f"remove {change['node']}: {count:,} pods to place again"

    def _add_nodes(self, change: Mapping[str, Any]) -> str:
        count = _number(change, "count", 1, MAX_NODES) or 0
        like = str(change.get("like") or usual_node(self._cluster))
        names = self._cluster.add_nodes(count, like)
        return f"add {len(names):,} nodes like {like}"

    def _weights(self, change: Mapping[str, Any]) -> str:
        weights = change.get("weights")
        if not isinstance(weights, Mapping) or not all(
            isinstance(one, int) and 0 <= one <= 100 for one in weights.values()
        ):
            raise InputError("weights has a whole number from 0 to 100 for each plugin")
        self._use(with_weights(self._settings, weights))
        return "weights: " + ", ".join(f"{name} {weight}" for name, weight in weights.items())

    def _config(self, change: Mapping[str, Any]) -> str:
        text = _text(change, "config", MAX_TEXT)
        release = self._subject.release
        self._use(parse_config(text, "the configuration", default_catalog(release), release))
        return "schedule with another configuration"

    def _use(self, settings: KubeSchedulerConfiguration) -> None:
        self._settings = settings
        self._cluster.use_config(settings, self._subject.plugins)


def with_weights(
    config: KubeSchedulerConfiguration, weights: Mapping[str, int]
) -> KubeSchedulerConfiguration:
    """The configuration with other weights of scores, in all profiles; 0: the plugin does not score."""

    def change(profile: Profile) -> Profile:
        plugins = profile.plugins

        def weighted(refs: tuple[PluginRef, ...]) -> tuple[PluginRef, ...]:
            return tuple(PluginRef(name=one.name, weight=weights.get(one.name) or one.weight) for one in refs)

        off = tuple(PluginRef(name=name) for name, weight in weights.items() if weight == 0)
        score = replace(
            plugins.score,
            enabled=tuple(one for one in weighted(plugins.score.enabled) if weights.get(one.name) != 0),
            disabled=(*plugins.score.disabled, *off),
        )
        multi = replace(plugins.multi_point, enabled=weighted(plugins.multi_point.enabled))
        return replace(profile, plugins=replace(plugins, score=score, multi_point=multi))

    return replace(config, profiles=tuple(change(profile) for profile in config.profiles))


def decision_state(history: History, attempt: Attempt) -> tuple[Objects, Pod | None]:
    """What the scheduler saw when it made a decision, and the pod that it was about.

    Each kind has a watch of its own, so that the pod, or an object that it depends on, may have reached the
    scheduler before it reached the history.
    """
    objects = {**history.state_at(attempt.seq - 1), **_late(history, attempt)}
    pod = objects.get((Pod, attempt.pod))
    is_it = isinstance(pod, Pod) and pod.uid == attempt.uid
    if is_it and isinstance(pod, Pod) and not (attempt.observed and pod.spec.node_name):
        return objects, pod
    for entry in history.entries(history.dropped):
        if isinstance(entry, Change) and entry.key == (Pod, attempt.pod):
            for item in (entry.before, entry.after):
                if isinstance(item, Pod) and item.uid == attempt.uid and not item.spec.node_name:
                    return {**objects, (Pod, attempt.pod): item}, item
    return objects, None


def _late(history: History, attempt: Attempt) -> Objects:
    """Objects that existed at an attempt, by their time of creation, and reached the history after it.

    Not nodes and pods: these timestamps are whole seconds, and the number of either changes within one.
    """
    found: Objects = {}
    for entry in history.entries(attempt.seq):
        if entry.time > attempt.time + LATE_SECONDS:
            break
        if isinstance(entry, Change) and entry.before is None and entry.after is not None:
            created = entry.after.metadata.creation_timestamp
            if entry.key[0] not in (Node, Pod) and created and created.timestamp() <= attempt.time:
                found[entry.key] = entry.after
    return found


def _score_table(answer: PodAnswer) -> dict[str, Any] | None:
    """The best nodes with their scores by plugin: raw, normalized and weighted."""
    explanation = answer.explanation
    if explanation is None or not explanation.total:
        return None
    total = explanation.total
    best = sorted(total, key=lambda name: (name != explanation.chosen, -total[name]))[:MAX_SCORED]
    current = answer.pod.spec.node_name
    if current in total and current not in best:
        best[-1] = current
    return {
        "feasible": len(total),
        "ties": len(explanation.best),
        "chosen": explanation.chosen,
        "plugins": [{"name": name, "weight": one.weight} for name, one in explanation.scores.items()],
        "nodes": [
            {
                "node": name,
                "total": total[name],
                "raw": [one.raw[name] for one in explanation.scores.values()],
                "normalized": [one.normalized[name] for one in explanation.scores.values()],
            }
            for name in best
        ],
    }


def _variant(given: Mapping[str, Any], subject: Subject) -> Variant:
    version, text = str(given.get("version") or ""), str(given.get("config") or "")
    release = RELEASES.get(version, subject.release) if version else subject.release
    if version and version not in RELEASES:
        raise InputError(f"version is one of {', '.join(RELEASES)}, not {version!r}")
    if text:
        if len(text) > MAX_TEXT:
            raise InputError("the configuration is too long")
        config = parse_config(text, "the configuration", default_catalog(release), release)
    elif release is subject.release:
        config = subject.settings
    else:
        config = default_config(release=release)
    weights = given.get("weights")
    if isinstance(weights, Mapping) and weights:
        config = with_weights(config, {str(name): int(one) for name, one in weights.items()})
    return Variant(str(given.get("name") or f"Kubernetes {release}"), config)


def _use(cluster: Cluster, resources: Sequence[str]) -> dict[str, list[list[int]]]:
    """By node: allocatable and requested of these resources, and the number of pods."""
    columns, found = cluster.columns, {}
    nodes = columns.nodes
    known = [nodes.resource(name) for name in resources if name != "pods"]
    for name in cluster.nodes:
        row = nodes.row_of[name]
        allocatable = [int(one.allocatable.array[row]) for one in known]
        requested = [int(one.requested.array[row]) for one in known]
        if "pods" in resources:
            at = list(resources).index("pods")
            allocatable.insert(at, int(nodes.allowed_pods.array[row]))
            requested.insert(at, int(nodes.pod_count.array[row]))
        found[name] = [allocatable, requested]
    return found


def _total(use: Mapping[str, list[list[int]]], number: int) -> float:
    allocatable = sum(one[0][number] for one in use.values())
    return sum(one[1][number] for one in use.values()) / allocatable if allocatable else 0.0


def _text(change: Mapping[str, Any], name: str, most: int = 1000) -> str:
    value = change.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > most:
        raise InputError(f"a change of type {change.get('type')} needs the text {name!r}")
    return value


def _number(change: Mapping[str, Any], name: str, least: int | None, most: int) -> int | None:
    value = change.get(name)
    if value is None and least is None:
        return None
    if not isinstance(value, int) or not (least or 0) <= value <= most:
        raise InputError(f"{name} is a whole number from {least or 0} to {most:,}")
    return value
