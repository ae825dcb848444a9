"""What tests of plugins import: a core that decides without a cluster, builders, a fake handle, and checks.

    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, MyPlugin])
    core.load([make_node("a"), make_node("b")])
    assert core.decide(make_pod("web")).node_name == "a"

More builders are in `bayplan.testing.builders`. The checks that every plugin has to pass are in
`plugin_checks.py`. A whole scheduler runs in virtual time (`run_virtual`) against a store in memory:
`Scheduler(MemoryCluster(MemoryStore()))`.
"""

from bayplan.answers.explain.explanation import explain as explain
from bayplan.config import load_config as load_config
from bayplan.config import parse_config as parse_config
from bayplan.plugins import BUILTIN_PLUGINS as BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore as SchedulingCore
from bayplan.scheduler.loop import Scheduler as Scheduler
from bayplan.scheduler.plugin_sources import catalog_with as catalog_with
from bayplan.simulate.memory.store import MemoryCluster as MemoryCluster
from bayplan.simulate.memory.store import MemoryStore as MemoryStore
from bayplan.simulate.virtual_time import quiescent as quiescent
from bayplan.simulate.virtual_time import run_virtual as run_virtual
from bayplan.testing.builders import make_node as make_node
from bayplan.testing.builders import make_pod as make_pod
from bayplan.testing.calling import FakeHandle as FakeHandle
from bayplan.testing.calling import PluginCheckError as PluginCheckError
from bayplan.testing.calling import make_plugin as make_plugin
from bayplan.testing.plugin_checks import check_plugin as check_plugin
