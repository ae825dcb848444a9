"""A plugin as its author meets it: made by `plugin new`, installed, checked, tried, broken in ten ways.

Everything runs in a fresh virtual environment, one process per command. Each message names the remedy, and
where.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import bayplan
from tests.effort import LONG_RUN

pytestmark = LONG_RUN

NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    }
    for name in ("a", "b")
]
PODS = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }
    for name, labels in (("p", {"example.com/prefer-ssd": "yes"}), ("q", {}))
]

FILTER = """        wanted = pod.labels.get(self.args.label)
        if wanted is None or node.labels.get(self.args.label) == wanted:
            return None
        return unresolvable(f"node(s) didn't have {self.args.label}={wanted}")
"""
SCORE = "        return 100 if self.args.label in pod.labels or self.args.label not in node.labels else 0\n"
DEF = "    def filter_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status | None:\n"
COLUMN = """    def filter(self, state, pod, nodes):
        nodes.pod_count[0] = 7
        return []

"""

CONFIG = ("--config", "scheduler.yaml")
DECIDE = ("decide", "cluster.yaml", *CONFIG)
UP = ("up", *CONFIG, "-f", "cluster.yaml", "--port", "0", "--exit-when-idle", "always")
CHECK = ("plugin", "check", "PreferSsd", *CONFIG)

ENTRY = "plugin prefer_ssd:PreferSsd (prefer-ssd): "
IN_FILTER = 'default/p: running "PreferSsd" filter plugin: '

WAYS = [
    pytest.param(
        ("prefer_ssd.py", DEF, DEF.replace(":\n", "\n")),
        DECIDE,
        ENTRY + "it cannot be imported: SyntaxError: expected ':' (prefer_ssd.py, line {line})",
        id="a syntax error",
    ),
    pytest.param(
        ("prefer_ssd.py", "class PreferSsd(", "class PreferSsds("),
        CHECK,
        ENTRY + "prefer_ssd has no class PreferSsd, but PreferSsds; correct it or the entry point in "
        "pyproject.toml",
        id="another name",
    ),
    pytest.param(
        ("prefer_ssd.py", "from bayplan.plugin import (", "import ssd_tools\nfrom bayplan.plugin import ("),
        UP,
        ENTRY
        + "it cannot be imported: ModuleNotFoundError: No module named 'ssd_tools' (prefer_ssd.py:{line})",
        id="a package that is not installed",
    ),
    pytest.param(
        ("prefer_ssd.py", FILTER, "        return False\n"),
        DECIDE,
        IN_FILTER + 'filter_node returned False; return unschedulable("reason") or None (prefer_ssd.py:',
        id="a truth instead of a rejection",
    ),
    pytest.param(
        ("prefer_ssd.py", SCORE, "        return 99.5\n"),
        DECIDE,
        'plugin "PreferSsd" failed with: score_node returned 99.5; return an integer from 0 to 100 '
        "(prefer_ssd.py:",
        id="a fraction as score",
    ),
    pytest.param(
        ("prefer_ssd.py", FILTER, '        return node.labels["zone"]\n'),
        UP,
        "running \"PreferSsd\" filter plugin: KeyError: 'zone' (prefer_ssd.py:{line}, in filter_node)",
        id="an exception",
    ),
    pytest.param(
        ("prefer_ssd.py", DEF, DEF.replace("pod: Pod, ", "")),
        DECIDE,
        IN_FILTER + "TypeError: PreferSsd.filter_node() takes 3 positional arguments but 4 were given "
        "(prefer_ssd.py:{line})",
        id="a wrong signature",
    ),
    pytest.param(
        ("prefer_ssd.py", DEF, COLUMN + DEF),
        DECIDE,
        IN_FILTER + "ValueError: assignment destination is read-only: the array is shared, change a copy "
        "(prefer_ssd.py:",
        id="a column is changed",
    ),
    pytest.param(
        ("scheduler.yaml", "      label: example.com/prefer-ssd\n", "      lable: x\n"),
        UP,
        'scheduler.yaml:{line}: profiles[0].pluginConfig[0].args.lable: unknown field, did you mean "label"?',
        id="a misspelled argument",
    ),
    pytest.param(
        ("prefer_ssd.py", SCORE, "        return min(100, len(node.pods))\n"),
        CHECK,
        "depends_on does not declare the pods on the node (usage=True), but without them the results differ: "
        "node-0: 5 and 0; ",
        id="a dependency that is not declared",
    ),
]


@dataclass(frozen=True)
class Author:
    """An author in the folder of the package, with a virtual environment of their own."""

    python: Path
    package: Path

    def run(self, *arguments: str, module: str = "bayplan.cli.main") -> tuple[int, str]:
        """Exit status and output of a command."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.package.parent), "COLUMNS": "200"}
        ended = subprocess.run(
            [self.python, "-m", module, *arguments],
            cwd=self.package,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    """Everything is installed from this machine: the environment sees the packages of this one."""
    for needed in ("pip", "hatchling", "editables"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    folder = tmp_path_factory.mktemp("author")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    paths = [str(Path(bayplan.__file__).parents[1]), *(path for path in sys.path if "site-packages" in path)]
    (site / "of_this_machine.pth").write_text("\n".join(paths))
    author = Author(python, folder / "prefer-ssd")
    made = Author(python, folder).run("plugin", "new", "PreferSsd")
    assert made[0] == 0, made[1]
    install = ("install", "--disable-pip-version-check", "--no-index", "--no-build-isolation", "--no-deps")
    installed = author.run(*install, "-e", ".", module="pip")
    assert installed[0] == 0, installed[1]
    (author.package / "cluster.yaml").write_text(yaml.safe_dump_all([*NODES, *PODS]))
    return author


@pytest.fixture
def edit(author: Author) -> Iterator[Callable[[str, str, str], int]]:
    """Replaces text in a file of the package for one test; returns the line."""
    before: dict[Path, str] = {}

    def replace(name: str, old: str, new: str) -> int:
        file = author.package / name
        before[file] = text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
        return text[: text.index(old)].count("\n") + 1

    yield replace
    for file, text in before.items():
        file.write_text(text)


def test_there_are_ten() -> None:
    assert len(WAYS) == 10


def test_the_plugin_works(author: Author) -> None:
    status, output = author.run(*DECIDE)
    assert status == 0, output
    assert "2 node(s) didn't have example.com/prefer-ssd=yes" in output
    status, output = author.run(*CHECK)
    assert status == 0, output
    assert output.endswith("PreferSsd: ok\n")


@pytest.mark.parametrize(("change", "command", "message"), WAYS)
def test_the_message_names_the_remedy(
    change: tuple[str, str, str],
    command: tuple[str, ...],
    message: str,
    author: Author,
    edit: Callable[[str, str, str], int],
) -> None:
    line = edit(*change)
    status, output = author.run(*command)
    assert message.replace("{line}", str(line)) in output
    # `up` keeps running the cluster, and its log has tracebacks.
    keeps_running = command is UP and "filter plugin" in message
    check_failed = command is CHECK and "FAILED" in output
    assert status == (0 if keeps_running else 1 if check_failed else 2)
    if not keeps_running:
        assert "Traceback" not in output
        assert str(author.package) not in output, "no path of this machine in messages"


def test_the_traceback_on_demand(author: Author, edit: Callable[[str, str, str], int]) -> None:
    edit("prefer_ssd.py", FILTER, '        return node.labels["zone"]\n')
    status, output = author.run(*DECIDE, "--traceback")
    assert status == 2
    assert output.count("Traceback (most recent call last)") == 1
    assert 'return node.labels["zone"]' in output
