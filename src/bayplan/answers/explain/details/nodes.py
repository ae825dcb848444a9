"""Labels, taints and features of nodes that a pod does not go with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bayplan.answers.explain.details.subject import MAX_NAMED, Subject, named
from bayplan.api.node import Node
from bayplan.api.node_selectors import CompiledTerm, field_matches, required_node_affinity
from bayplan.api.selectors import Requirement
from bayplan.api.tolerations import untolerated_taint
from bayplan.plugins.node_affinity import REASON_POD
from bayplan.plugins.node_declared_features import required_features


def taints_detail(subject: Subject) -> str:
    """The untolerated taints, each once."""
    nodes, tolerations = subject.cluster.nodes, subject.pod.spec.tolerations
    texts = []
    for taint_set in dict.fromkeys(nodes.taint_set.array.take(subject.rows).tolist()):
        taint = untolerated_taint(nodes.taint_lists.values[taint_set], tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            texts.append(f"{taint.key}{value}:{taint.effect}")
    return named(texts)


def affinity_detail(subject: Subject) -> str:
    """The requirements that fail, with the number of nodes and what these have instead.

    Of alternative terms, the one counts that a node fulfils best.
    """
    if REASON_POD not in subject.status.reasons:
        return ""
    affinity = required_node_affinity(subject.pod)
    selector = () if affinity.selector is None else affinity.selector.requirements
    failing: Counter[str] = Counter()
    instead: dict[str, Counter[str]] = {}
    for node in subject.node_objects():
        missed = [one for one in selector if not one.matches(node.labels)]
        if affinity.terms is not None:
            terms: list[list[Requirement]] = [list(_missed(term, node)) for term in affinity.terms]
            nearest: list[Requirement] = min(terms, key=len, default=[])
            missed.extend(nearest)
        for requirement in dict.fromkeys(missed):
            text = str(requirement)
            failing[text] += 1
            there = node.labels.get(requirement.key, "no such label")
            if requirement.key == "metadata.name":
                there = node.name
            instead.setdefault(text, Counter())[there] += 1
    if not failing:
        return "no term can match" if affinity.terms == () else ""
    texts = []
    for text, count in failing.most_common():
        values = instead[text].most_common(MAX_NAMED)
        more = ", …" if len(instead[text]) > MAX_NAMED else ""
        there = ", ".join(f"{value} ({number:,})" if len(values) > 1 else value for value, number in values)
        of = "" if count == len(subject.nodes) else f" on {count:,}"
        texts.append(f"requires {text}{of}, has {there}{more}")
    left = len(texts) - MAX_NAMED
    return "; ".join(texts[:MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def _missed(term: CompiledTerm, node: Node) -> Iterator[Requirement]:
    yield from (one for one in term.expressions if not one.matches(node.labels))
    yield from (one for one in term.fields if not field_matches(one, node.name))


def features_detail(subject: Subject) -> str:
    """The features that the nodes do not declare."""
    required = required_features(subject.pod)
    missing: set[str] = set()
    for node in subject.node_objects():
        missing |= required.difference(node.status.declared_features)
    return f"lacks {named(sorted(missing))}" if missing else ""
