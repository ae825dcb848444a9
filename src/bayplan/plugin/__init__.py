"""What plugin authors import. Built-in plugins use nothing else of bayplan.

Start with `NodePlugin` (one node at a time); `Plugin` is for rules over whole columns. The protocols
(`FilterPlugin`, `ScorePlugin`, …) are the extension points: when each is called, and what its answers mean.
The rest is in submodules by theme:

    args        Arguments of plugins: their types and the errors of validation.
    devices     Devices, their classes, and claims for them.
    objects     Other API objects, and Kubernetes' rules about their fields.
    preemption  Preemption: hypotheses, dry runs and the choice of victims.
    storage     Volumes: claims, storage classes, CSI, and which volumes pods use.

`_internal` is for the built-in plugins and not part of the API.
"""

from bayplan.api.meta import LabelSelector as LabelSelector
from bayplan.api.meta import Object as Object
from bayplan.api.node import Namespace as Namespace
from bayplan.api.node import Node as Node
from bayplan.api.node import Taint as Taint
from bayplan.api.pod import Pod as Pod
from bayplan.api.pod import Toleration as Toleration
from bayplan.api.releases import DEFAULT_RELEASE as DEFAULT_RELEASE
from bayplan.api.releases import Release as Release
from bayplan.api.selectors import Selector as Selector
from bayplan.api.selectors import compile_selector as compile_selector
from bayplan.errors import SelectorError as SelectorError
from bayplan.framework.args import PluginArgs as PluginArgs
from bayplan.framework.events import Action as Action
from bayplan.framework.events import ClusterEvent as ClusterEvent
from bayplan.framework.events import ClusterEventWithHint as ClusterEventWithHint
from bayplan.framework.events import Hint as Hint
from bayplan.framework.events import Resource as Resource
from bayplan.framework.events import event_with_hint as event_with_hint
from bayplan.framework.outcome import FilterOutcome as FilterOutcome
from bayplan.framework.outcome import PostFilterResult as PostFilterResult
from bayplan.framework.plugin_api import MAX_SCORE as MAX_SCORE
from bayplan.framework.plugin_api import AddRemovePodPlugin as AddRemovePodPlugin
from bayplan.framework.plugin_api import BindPlugin as BindPlugin
from bayplan.framework.plugin_api import Dependencies as Dependencies
from bayplan.framework.plugin_api import FilterPlugin as FilterPlugin
from bayplan.framework.plugin_api import Handle as Handle
from bayplan.framework.plugin_api import NodeNames as NodeNames
from bayplan.framework.plugin_api import NodePlugin as NodePlugin
from bayplan.framework.plugin_api import NodesAffectedByPodsPlugin as NodesAffectedByPodsPlugin
from bayplan.framework.plugin_api import NormalizePlugin as NormalizePlugin
from bayplan.framework.plugin_api import PermitPlugin as PermitPlugin
from bayplan.framework.plugin_api import Plugin as Plugin
from bayplan.framework.plugin_api import PostBindPlugin as PostBindPlugin
from bayplan.framework.plugin_api import PostFilterPlugin as PostFilterPlugin
from bayplan.framework.plugin_api import PreBindPlugin as PreBindPlugin
from bayplan.framework.plugin_api import PreEnqueuePlugin as PreEnqueuePlugin
from bayplan.framework.plugin_api import PreFilterPlugin as PreFilterPlugin
from bayplan.framework.plugin_api import PreScorePlugin as PreScorePlugin
from bayplan.framework.plugin_api import QueueSortPlugin as QueueSortPlugin
from bayplan.framework.plugin_api import Reject as Reject
from bayplan.framework.plugin_api import ReservePlugin as ReservePlugin
from bayplan.framework.plugin_api import ScorePlugin as ScorePlugin
from bayplan.framework.plugin_api import Wait as Wait
from bayplan.framework.plugin_api import WaitingPodView as WaitingPodView
from bayplan.framework.plugin_api import normalize_default as normalize_default
from bayplan.framework.plugin_api import whole_share as whole_share
from bayplan.framework.state import BINDING_ANNOTATIONS as BINDING_ANNOTATIONS
from bayplan.framework.state import CycleState as CycleState
from bayplan.framework.state import NotInStateError as NotInStateError
from bayplan.framework.state import annotate_binding as annotate_binding
from bayplan.framework.status import SKIP as SKIP
from bayplan.framework.status import SKIP_FOR_SIGNATURE as SKIP_FOR_SIGNATURE
from bayplan.framework.status import SUCCESS as SUCCESS
from bayplan.framework.status import Code as Code
from bayplan.framework.status import Status as Status
from bayplan.framework.status import failure as failure
from bayplan.framework.status import unresolvable as unresolvable
from bayplan.framework.status import unschedulable as unschedulable
from bayplan.state.cluster import Cluster as Cluster
from bayplan.state.columns import IdColumn as IdColumn
from bayplan.state.columns import Lookup as Lookup
from bayplan.state.derived import Derived as Derived
from bayplan.state.derived import ObjectReader as ObjectReader
from bayplan.state.derived import changed_rows as changed_rows
from bayplan.state.derived import derived as derived
from bayplan.state.node_amounts import Amounts as Amounts
from bayplan.state.node_amounts import NodeAmounts as NodeAmounts
from bayplan.state.nodes import CPU as CPU
from bayplan.state.nodes import EPHEMERAL_STORAGE as EPHEMERAL_STORAGE
from bayplan.state.nodes import MEMORY as MEMORY
from bayplan.state.terms import PodQuery as PodQuery
from bayplan.state.terms import PodSelector as PodSelector
from bayplan.state.view import BoolColumn as BoolColumn
from bayplan.state.view import IntColumn as IntColumn
from bayplan.state.view import LabelValues as LabelValues
from bayplan.state.view import NodeColumns as NodeColumns
from bayplan.state.view import NodeInfo as NodeInfo
