"""A pod evaluated on a small cluster, for tests of its explanation."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.answers.explain.explanation import explain
from bayplan.answers.explain.tables import EvaluatedPod
from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.scheduler.core import SchedulingCore


def evaluate(pod: Pod, *objects: Object | Iterable[Object]) -> EvaluatedPod:
    core = SchedulingCore()
    core.load(item for part in objects for item in ([part] if isinstance(part, Object) else part))
    framework = core.frameworks[pod.spec.scheduler_name]
    return EvaluatedPod(pod, framework, explain(framework, pod))
