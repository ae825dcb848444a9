"""Details that kube-scheduler's reasons leave out: which label, taint, pod, domain, port or volume it is.

The reasons are fixed texts, because kube-scheduler counts them. `detail` says, for the nodes that one plugin
rejects for one reason, what exactly is in the way and how near the nearest node is.

    resources.py    NodeResourcesFit: the smallest shortage, or the size of the largest node
    nodes.py        TaintToleration, NodeAffinity, NodeDeclaredFeatures: taints, labels, features
    pods.py         InterPodAffinity, NodePorts: which pods, in which domain
    spread.py       PodTopologySpread: the skew by domain
    storage.py      VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits: which claim and volume
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bayplan.answers.explain.details.nodes import affinity_detail, features_detail, taints_detail
from bayplan.answers.explain.details.pods import affinity_between_pods_detail, ports_detail
from bayplan.answers.explain.details.resources import resources_detail
from bayplan.answers.explain.details.spread import spread_detail
from bayplan.answers.explain.details.storage import (
    restrictions_detail,
    volume_binding_detail,
    volume_limits_detail,
    volume_zone_detail,
)
from bayplan.answers.explain.details.subject import Describe, Subject
from bayplan.answers.explain.rejections import Rejection
from bayplan.api.pod import Pod
from bayplan.framework.status import Code
from bayplan.runtime.framework import Framework

DETAILS: Final[dict[str, Describe]] = {
    "InterPodAffinity": affinity_between_pods_detail,
    "NodeAffinity": affinity_detail,
    "NodeDeclaredFeatures": features_detail,
    "NodePorts": ports_detail,
    "NodeResourcesFit": resources_detail,
    "NodeVolumeLimits": volume_limits_detail,
    "PodTopologySpread": spread_detail,
    "TaintToleration": taints_detail,
    "VolumeBinding": volume_binding_detail,
    "VolumeRestrictions": restrictions_detail,
    "VolumeZone": volume_zone_detail,
}
"""By plugin: the function that adds details to its reasons. DynamicResources has `explain/devices.py`."""


def detail(framework: Framework, pod: Pod, rejection: Rejection) -> str:
    """Details that the reason leaves out; "" if there are none."""
    describe = DETAILS.get(rejection.status.plugin)
    if describe is None or rejection.status.code is Code.ERROR:
        return ""
    row_of = framework.cluster.nodes.row_of
    rows = np.array([row_of[name] for name in rejection.nodes], dtype=np.intp)
    return describe(Subject(framework, pod, rejection.status, rejection.nodes, rows))
