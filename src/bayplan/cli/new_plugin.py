"""The package that `bayplan plugin new` writes: it is installable and passes its own tests."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Final

from bayplan.config import default_catalog
from bayplan.errors import InputError

_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,62}")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")

_PYPROJECT: Final = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$package"
version = "0.1.0"
description = "A scheduler plugin for bayplan"
requires-python = ">=3.11"
dependencies = ["bayplan"]

[project.optional-dependencies]
test = ["pytest"]

# bayplan finds the plugin here. It runs where the configuration names it.
[project.entry-points."bayplan.plugins"]
$name = "$module:$name"

[tool.hatch.build.targets.wheel]
include = ["$module.py"]
""")

_PLUGIN: Final = Template('''\
"""$name: a scheduler plugin for bayplan."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.plugin import (
    Action,
    ClusterEventWithHint,
    Dependencies,
    NodeInfo,
    NodePlugin,
    NodeRejection,
    Pod,
    PluginArgs,
    Resource,
    event_with_hint,
    reject,
)
from bayplan.plugin.args import FieldError, Gates, at, required


class ${name}Args(PluginArgs, frozen=True):
    """The arguments in the configuration: pluginConfig, args."""

    label: str = "$label"  # label in the file

    def validate(self, path: str, gates: Gates) -> Iterator[FieldError]:
        if not self.label:
            yield required(at(path, "label"), "the label of the nodes")


class $name(NodePlugin):
    """Pods with the label go only to nodes with the same value, and other pods prefer nodes without it."""

    args_type = ${name}Args
    args: ${name}Args

    # What the results depend on: the labels of the pod, and the Node object. Results are cached accordingly.
    depends_on = Dependencies.of("labels")

    def filter_node(self, pod: Pod, node: NodeInfo) -> NodeRejection | None:
        wanted = pod.labels.get(self.args.label)
        if wanted is None or node.labels.get(self.args.label) == wanted:
            return None
        return reject(f"node(s) didn't have {self.args.label}={wanted}", unresolvable=True)

    def score_node(self, pod: Pod, node: NodeInfo) -> int:
        return 100 if self.args.label in pod.labels or self.args.label not in node.labels else 0

    def events_to_register(self) -> list[ClusterEventWithHint]:
        """A pod that was rejected is tried again when a node is added or relabelled."""
        return [event_with_hint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)]
''')

_TEST: Final = Template('''\
"""Tests of $name. `core.decide` runs a whole scheduling cycle, without a cluster."""

from __future__ import annotations

import pytest
from bayplan.config import load_config
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.scheduler.core import SchedulingCore
from bayplan.scheduler.plugin_sources import catalog_with
from bayplan.testing.builders import make_node, make_pod
from bayplan.testing.plugin_checks import check_plugin
from pathlib import Path

from $module import $name, ${name}Args

LABEL = "$label"


@pytest.fixture
def core() -> SchedulingCore:
    made = SchedulingCore(plugins=[*BUILTIN_PLUGINS, $name])
    made.load([make_node("plain"), make_node("special", labels={LABEL: "a"})])
    return made


def test_pods_with_the_label_go_to_nodes_with_the_same_value(core: SchedulingCore) -> None:
    assert core.decide(make_pod("p", labels={LABEL: "a"})).node_name == "special"


def test_other_values_fit_nowhere(core: SchedulingCore) -> None:
    decision = core.decide(make_pod("p", labels={LABEL: "b"}))
    assert not decision.fits
    assert f"2 node(s) didn't have {LABEL}=b" in decision.message


def test_other_pods_prefer_nodes_without_it(core: SchedulingCore) -> None:
    assert core.decide(make_pod("p")).node_name == "plain"


def test_it_keeps_the_rules_of_plugins() -> None:
    check_plugin($name, ${name}Args())


def test_the_configuration_is_valid() -> None:
    plugins = [*BUILTIN_PLUGINS, $name]
    config = load_config(Path(__file__).parents[1] / "scheduler.yaml", catalog_with(plugins))
    assert SchedulingCore(config, plugins=plugins).frameworks
''')

_CONFIG: Final = Template("""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: $name
  pluginConfig:
  - name: $name
    args:
      label: $label
""")

_README: Final = Template("""\
# $name

A scheduler plugin for bayplan.

    pip install -e '.[test]'
    pytest
    bayplan plugin list
    bayplan plugin check $name
    bayplan up --nodes 5 --config scheduler.yaml

While you work on it, let bayplan load the file again whenever you save it:

    bayplan up --nodes 5 --plugin ./$module.py:$name --reload

| file | |
|---|---|
| `$module.py` | the plugin |
| `scheduler.yaml` | a configuration that enables it, with its arguments |
| `tests/test_$module.py` | tests; they run without a cluster |
""")


def words_of(name: str) -> list[str]:
    """`PreferSSDNodes` → prefer, ssd, nodes."""
    return [word.lower() for word in _WORD.findall(name)]


def write_package(name: str, directory: Path | None = None) -> Path:
    """Writes the package into a new directory, and returns the directory.

    Raises:
        InputError: the name cannot be used, or the directory exists.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot be a plugin's name: use a name like PreferSsd")
    if name in default_catalog().names:
        raise InputError(f"bayplan has a plugin {name}; choose another name")
    words = words_of(name)
    module, package = "_".join(words), "-".join(words)
    target = Path(package) if directory is None else directory
    if target.exists():
        raise InputError(f"{target} exists already; nothing was written. Choose another --directory")
    names = {"name": name, "module": module, "package": package, "label": f"example.com/{package}"}
    files = {
        "pyproject.toml": _PYPROJECT,
        f"{module}.py": _PLUGIN,
        f"tests/test_{module}.py": _TEST,
        "scheduler.yaml": _CONFIG,
        "README.md": _README,
    }
    try:
        (target / "tests").mkdir(parents=True)
        for file, template in files.items():
            (target / file).write_text(template.substitute(names), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.strerror or error}".lower(), source=str(target)) from None
    return target
