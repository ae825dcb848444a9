"""What plugin authors import. Built-in plugins use nothing else of bayplan.

Start with `NodePlugin` (one node at a time); `Plugin` is for rules over whole columns. The protocols
(`FilterPlugin`, `ScorePlugin`, …) are the extension points: when each is called, and what its answers mean.
The rest is in submodules by theme:

    args           Arguments of plugins: their types and the errors of validation.
    columns        Columns, ids and indexes over nodes, for rules over whole columns.
    counts         How many pods match a query on each node and in each domain.
    devices        Devices, their classes, and claims for them.
    images         Container images.
    node_affinity  Node affinity and node selectors, for one node and for all rows.
    objects        API objects besides pods and nodes.
    ports          Host ports.
    preemption     Preemption: hypotheses, dry runs and the choice of victims.
    resources      Quantities, and what pods request.
    selectors      Label selectors.
    spread         Topology spread constraints, and the selectors of a pod's owners.
    storage        Volumes: claims, storage classes, CSI, and which volumes pods use.
    taints         Taints and tolerations.
    terms          (Anti-)affinity terms of pods, and which pods carry them.
"""

from bayplan.api.meta import (
    LabelSelector,
    Object,
)
from bayplan.api.node import (
    Namespace,
    Node,
    Taint,
)
from bayplan.api.pod import (
    Pod,
    Toleration,
)
from bayplan.api.releases import (
    DEFAULT_RELEASE,
    Release,
)
from bayplan.api.selectors import (
    Selector,
    compile_selector,
)
from bayplan.errors import (
    SelectorError,
)
from bayplan.framework.dependencies import Dependencies
from bayplan.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    event_with_hint,
)
from bayplan.framework.handle import (
    Handle,
)
from bayplan.framework.outcome import (
    FilterOutcome,
    PostFilterResult,
)
from bayplan.framework.plugin_api import (
    MAX_SCORE,
    AddRemovePodPlugin,
    BindPlugin,
    DomainScorePlugin,
    FilterPlugin,
    NodeNames,
    NodePlugin,
    NodeRejection,
    NodesAffectedByPodsPlugin,
    NormalizePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    Reject,
    RejectedRowsPlugin,
    ReservePlugin,
    RowFilterPlugin,
    RowScorePlugin,
    ScorePlugin,
    UniformScorePlugin,
    Wait,
    WaitingKeysPlugin,
    normalize_default,
    reject,
    whole_share,
)
from bayplan.framework.plugin_args.base import (
    PluginArgs,
)
from bayplan.framework.state import (
    BINDING_ANNOTATIONS,
    CycleState,
    NotInStateError,
    annotate_binding,
)
from bayplan.framework.status import (
    SKIP,
    SKIP_FOR_SIGNATURE,
    SUCCESS,
    Code,
    Status,
    failure,
    unresolvable,
    unschedulable,
)
from bayplan.state.cluster import (
    Cluster,
)
from bayplan.state.label_sets import (
    PodQuery,
    PodSelector,
)
from bayplan.state.node_info import (
    NodeInfo,
)
from bayplan.state.nodes import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
)
from bayplan.state.view import (
    BoolColumn,
    IntColumn,
    NodeColumns,
)

__all__ = [
    "BINDING_ANNOTATIONS",
    "CPU",
    "DEFAULT_RELEASE",
    "EPHEMERAL_STORAGE",
    "MAX_SCORE",
    "MEMORY",
    "SKIP",
    "SKIP_FOR_SIGNATURE",
    "SUCCESS",
    "Action",
    "AddRemovePodPlugin",
    "BindPlugin",
    "BoolColumn",
    "Cluster",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Code",
    "CycleState",
    "Dependencies",
    "DomainScorePlugin",
    "FilterOutcome",
    "FilterPlugin",
    "Handle",
    "Hint",
    "IntColumn",
    "LabelSelector",
    "Namespace",
    "Node",
    "NodeColumns",
    "NodeInfo",
    "NodeNames",
    "NodePlugin",
    "NodeRejection",
    "NodesAffectedByPodsPlugin",
    "NormalizePlugin",
    "NotInStateError",
    "Object",
    "PermitPlugin",
    "Plugin",
    "PluginArgs",
    "Pod",
    "PodQuery",
    "PodSelector",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "Reject",
    "RejectedRowsPlugin",
    "Release",
    "ReservePlugin",
    "Resource",
    "RowFilterPlugin",
    "RowScorePlugin",
    "ScorePlugin",
    "Selector",
    "SelectorError",
    "Status",
    "Taint",
    "Toleration",
    "UniformScorePlugin",
    "Wait",
    "WaitingKeysPlugin",
    "annotate_binding",
    "compile_selector",
    "event_with_hint",
    "failure",
    "normalize_default",
    "reject",
    "unresolvable",
    "unschedulable",
    "whole_share",
]
