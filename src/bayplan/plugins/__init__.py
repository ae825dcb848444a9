"""The built-in plugins, one file each, in the order of the default profile.

A plugin imports `bayplan.plugin` and nothing else of ours, and no plugin imports another.
"""

from bayplan.plugin import Plugin
from bayplan.plugins.default_binder import DefaultBinder
from bayplan.plugins.default_preemption import DefaultPreemption
from bayplan.plugins.dynamic_resources import DynamicResources
from bayplan.plugins.gang_scheduling import GangScheduling
from bayplan.plugins.image_locality import ImageLocality
from bayplan.plugins.inter_pod_affinity import InterPodAffinity
from bayplan.plugins.node_affinity import NodeAffinity
from bayplan.plugins.node_declared_features import NodeDeclaredFeatures
from bayplan.plugins.node_name import NodeName
from bayplan.plugins.node_ports import NodePorts
from bayplan.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from bayplan.plugins.node_resources_fit import NodeResourcesFit
from bayplan.plugins.node_unschedulable import NodeUnschedulable
from bayplan.plugins.node_volume_limits import NodeVolumeLimits
from bayplan.plugins.pod_group_pods_count import PodGroupPodsCount
from bayplan.plugins.pod_topology_spread import PodTopologySpread
from bayplan.plugins.priority_sort import PrioritySort
from bayplan.plugins.scheduling_gates import SchedulingGates
from bayplan.plugins.taint_toleration import TaintToleration
from bayplan.plugins.topology_placement_generator import TopologyPlacementGenerator
from bayplan.plugins.volume_binding import VolumeBinding
from bayplan.plugins.volume_restrictions import VolumeRestrictions
from bayplan.plugins.volume_zone import VolumeZone

BUILTIN_PLUGINS: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)

__all__ = ["BUILTIN_PLUGINS"]
