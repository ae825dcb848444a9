"""The library: a configuration that names one of its plugins works in every command, others cost nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bayplan.cli.main import main
from bayplan.config import LIBRARY, build_profiles, parse_config
from bayplan.errors import ConfigError
from bayplan.framework.plugin_api import NodePlugin, Plugin
from bayplan.plugin import CycleState, NodeInfo, Pod
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.plugins.library.capacity_scheduling import CapacityScheduling
from bayplan.runtime.profile import points_of
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import library_plugins, load_plugin, named_library_plugins

EXAMPLES = Path(__file__).parents[2] / "examples"

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: CapacityScheduling}, {name: TargetLoadPacking}, {name: GpuPacking}]
      disabled: [{name: DefaultPreemption}]
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 60}
- schedulerName: plain
"""


@pytest.mark.parametrize("name", LIBRARY)
def test_the_table_describes_the_class(name: str) -> None:
    plugin = library_plugins()[name]
    assert issubclass(plugin, Plugin)
    assert plugin.name == name
    assert points_of(plugin) == LIBRARY[name].points
    assert plugin.args_type is LIBRARY[name].args_type
    assert plugin not in BUILTIN_PLUGINS


def names_of(core: SchedulingCore, profile: str) -> set[str]:
    return {plugin.name for plugin in core.frameworks[profile].profile.all_plugins()}


def test_a_plugin_runs_in_the_profiles_that_name_it() -> None:
    core = SchedulingCore(parse_config(CONFIG))
    wanted = {"CapacityScheduling", "TargetLoadPacking", "GpuPacking"}
    assert set(named_library_plugins(core.config)) == wanted
    assert names_of(core, "default-scheduler") >= wanted
    assert not names_of(core, "plain") & set(LIBRARY)
    packing = next(
        plugin
        for plugin in core.frameworks["default-scheduler"].profile.all_plugins()
        if plugin.name == "TargetLoadPacking"
    )
    assert packing.args.target_utilization == 60


def test_without_a_configuration_none_runs() -> None:
    assert named_library_plugins(None) == {}
    assert not names_of(SchedulingCore(), "default-scheduler") & set(LIBRARY)


def test_the_argument_of_the_command_line_may_be_its_name() -> None:
    assert load_plugin("CapacityScheduling") is CapacityScheduling


def test_a_plugin_of_ones_own_may_have_the_name() -> None:
    class QOSSort(NodePlugin):
        def score_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
            return 1

    core = SchedulingCore(plugins=[*BUILTIN_PLUGINS, QOSSort])
    assert QOSSort in {type(plugin) for plugin in core.frameworks["default-scheduler"].profile.all_plugins()}


def test_other_names_are_still_unknown() -> None:
    config = parse_config(CONFIG.replace("GpuPacking", "GpuStacking"))
    with pytest.raises(ConfigError, match='"GpuStacking" does not exist'):
        build_profiles(config)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    assert main(["config", "check", str(config)]) == 0
    cluster = [str(EXAMPLES / "cluster.yaml"), "--config", str(config)]
    assert main(["decide", *cluster, "--output", "json"]) != 2
    assert '"TargetLoadPacking"' in capsys.readouterr().out
    all_defaults = str(tmp_path / "all.yaml")
    flags = ["--master=http://127.0.0.1:1", "--config", str(config), "--write-config-to", all_defaults]
    assert main(["run", *flags]) == 0
    assert "targetUtilization: 60" in (tmp_path / "all.yaml").read_text()


def test_only_named_plugins_are_imported() -> None:
    script = (
        "import sys\n"
        "from bayplan.config import parse_config\n"
        "from bayplan.scheduler.core import SchedulingCore\n"
        "SchedulingCore(parse_config(sys.stdin.read()))\n"
        "print(sorted(name for name in sys.modules if name.startswith('bayplan.plugins.library.')))"
    )
    config = CONFIG.replace("{name: TargetLoadPacking}, {name: GpuPacking}", "{name: QOSSort}")
    config = config.partition("  pluginConfig")[0]
    config = config.replace("DefaultPreemption}", "DefaultPreemption}, {name: PrioritySort}")
    ended = subprocess.run(
        [sys.executable, "-c", script], input=config, capture_output=True, text=True, check=True
    )
    assert (
        ended.stdout
        == "['bayplan.plugins.library.capacity_scheduling', 'bayplan.plugins.library.qos_sort']\n"
    )
