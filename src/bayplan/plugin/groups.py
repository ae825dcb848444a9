"""Pod groups: what their PodGroup objects ask for, and the extension points that judge them as a whole."""

from bayplan.api.groups import PodGroup as PodGroup
from bayplan.framework.group_api import GroupOutcome as GroupOutcome
from bayplan.framework.group_api import GroupPostFilterResult as GroupPostFilterResult
from bayplan.framework.group_api import GroupSteps as GroupSteps
from bayplan.framework.group_api import NodePlacement as NodePlacement
from bayplan.framework.group_api import PlacementFeasiblePlugin as PlacementFeasiblePlugin
from bayplan.framework.group_api import PlacementGeneratePlugin as PlacementGeneratePlugin
from bayplan.framework.group_api import PlacementScorePlugin as PlacementScorePlugin
from bayplan.framework.group_api import PodGroupPostFilterPlugin as PodGroupPostFilterPlugin
from bayplan.framework.state import GROUP_CYCLE as GROUP_CYCLE
from bayplan.framework.state import GroupCycleState as GroupCycleState
from bayplan.framework.status import waits as waits
from bayplan.state.groups import ALL_COUNT as ALL_COUNT
from bayplan.state.groups import COMPOSITE_EVENT as COMPOSITE_EVENT
from bayplan.state.groups import POD_GROUP_EVENT as POD_GROUP_EVENT
from bayplan.state.groups import SCHEDULED_COUNT as SCHEDULED_COUNT
from bayplan.state.groups import Group as Group
from bayplan.state.groups import GroupKey as GroupKey
from bayplan.state.groups import GroupState as GroupState
from bayplan.state.groups import group_key as group_key
from bayplan.state.groups import key_of as key_of
