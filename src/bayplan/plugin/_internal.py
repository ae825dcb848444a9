"""For the built-in plugins only: shortcuts, and indexes over the cluster. It may change in every version.

The shortcuts (`framework/shortcuts.py`) spare calls of other methods and must agree with them. Plugins of
others declare `Dependencies` instead.
"""

from bayplan.clock import Clock as Clock
from bayplan.clock import Freshness as Freshness
from bayplan.clock import Log as Log
from bayplan.clock import Topic as Topic
from bayplan.framework.shortcuts import DomainScorePlugin as DomainScorePlugin
from bayplan.framework.shortcuts import PreEnqueueField as PreEnqueueField
from bayplan.framework.shortcuts import RejectedRowsPlugin as RejectedRowsPlugin
from bayplan.framework.shortcuts import RowFilterPlugin as RowFilterPlugin
from bayplan.framework.shortcuts import RowScorePlugin as RowScorePlugin
from bayplan.framework.shortcuts import UniformScorePlugin as UniformScorePlugin
from bayplan.framework.shortcuts import WaitingKeysPlugin as WaitingKeysPlugin
from bayplan.framework.state import mark_cut_off as mark_cut_off
from bayplan.state.columns import Interner as Interner
from bayplan.state.columns import RowMask as RowMask
from bayplan.state.columns import distinct_ids as distinct_ids
from bayplan.state.counts import DomainSums as DomainSums
from bayplan.state.counts import PodCount as PodCount
