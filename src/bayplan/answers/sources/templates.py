"""Pod templates of workloads, in a form in which two of them can be compared.

A manifest is compared with what an API server has stored: with defaults, canonical quantities and without
nulls. A snapshot has only the parts of a template that scheduling reads, and the hash of the whole, so that a
change of a command or an environment variable, which replaces all pods, is found as well.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from bayplan.api.meta import Content, Object
from bayplan.api.pod import PodSpec
from bayplan.api.pod_defaults import default_template
from bayplan.api.reading import without_nulls
from bayplan.api.workloads import DaemonSet, Deployment, Job, StatefulSet
from bayplan.controllers.pods import hash_of

TEMPLATE_DIGEST: Final = "bayplan.dev/template-hash"
"""An annotation of workloads in a snapshot."""
_RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
_JOB_LABELS: Final = frozenset(
    f"{prefix}{name}" for prefix in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")
)


def template_of(item: Object) -> Content:
    """The pod template of a workload; empty if the dump does not have it."""
    template: Content = {}
    if isinstance(item, StatefulSet):
        template = item.spec.template
    elif isinstance(item, Deployment | DaemonSet | Job):
        template = item.spec.get("template") or {}
    return template if (template.get("spec") or {}).get("containers") else {}


def digest_of(item: Object) -> str:
    """The hash of the whole template of a workload; empty if it is not known."""
    template = template_of(item)
    return item.annotations.get(TEMPLATE_DIGEST, "") or (template_digest(template) if template else "")


def template_digest(template: Content) -> str:
    """The hash of a template, without what kubectl adds to restart a rollout, and the server to a Job."""
    # Imported here: the table of all types is needed only where templates are compared.
    from bayplan.embedded.server.schema.types import clean, named_type

    cleaned, _ = clean(without_nulls(template), named_type("PodTemplateSpec"), lenient=True)
    meta = cleaned.get("metadata") or {}
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key != _RESTARTED}
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key not in _JOB_LABELS}
    owner: Content = {"spec": {"template": {**cleaned, "metadata": {}}}}
    default_template(owner)
    spec = owner["spec"]["template"]["spec"]
    return hash_of({"labels": labels, "annotations": notes, "spec": spec})


def with_pruned_template(item: Object) -> Object:
    """The workload with only what scheduling reads of its template, and the hash of the whole."""
    template, digest = template_of(item), digest_of(item)
    if not template:
        return item
    described = template.get("metadata") or {}
    spec = msgspec.convert(without_nulls(template["spec"]), PodSpec)
    pruned = {
        "metadata": {name: described[name] for name in ("labels", "annotations") if described.get(name)},
        "spec": msgspec.json.decode(msgspec.json.encode(spec)),
    }
    notes = {**item.annotations, TEMPLATE_DIGEST: digest}
    meta = replace(item.metadata, annotations=notes)
    if isinstance(item, StatefulSet):
        return replace(item, metadata=meta, spec=replace(item.spec, template=pruned))
    assert isinstance(item, Deployment | DaemonSet | Job), "other kinds have no template"
    return replace(item, metadata=meta, spec={**item.spec, "template": pruned})
