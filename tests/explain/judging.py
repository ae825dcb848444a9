"""A pod judged on a small cluster, for tests of what is said about it."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.api.meta import Object
from bayplan.api.pod import Pod
from bayplan.explain.explanation import explain
from bayplan.explain.tables import Judged
from bayplan.scheduler.core import SchedulingCore


def judge(pod: Pod, *objects: Object | Iterable[Object]) -> Judged:
    core = SchedulingCore()
    core.load(item for part in objects for item in ([part] if isinstance(part, Object) else part))
    return Judged(pod, core.cluster, explain(core.frameworks[pod.spec.scheduler_name], pod))
