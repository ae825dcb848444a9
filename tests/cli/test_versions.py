"""Every command that decides uses one release, chosen by flag, snapshot or default, and prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayplan.answers.sources.snapshot import Header, encode_snapshot
from bayplan.cli.main import main
from bayplan.testing.builders import make_node, make_pod

OLD, NEW = "1.36", "1.37"
PREFIXES = ("decidedasKubernetes", '"emulatedVersion":"', '"kubernetesVersion":"', '"kubernetesVersions":"')
"""The ways in which outputs name the version, without spaces."""
ONLY_OLD = "no new claims to deallocate"
"""A message that v1.37 does not have any more."""
PACK = str(Path(__file__).parents[2] / "examples/pack.yaml")

DECIDING = {
    "decide": ["decide", "FILE", "--output", "table"],
    "decide JSON": ["decide", "FILE"],
    "explain": ["explain", "pod", "huge", "-f", "FILE"],
    "explain JSON": ["explain", "pod", "huge", "-f", "FILE", "-o", "json"],
    "whatif": ["whatif", "-f", "FILE"],
    "whatif JSON": ["whatif", "-f", "FILE", "-o", "json"],
}
OTHERS = {
    "capacity JSON": ["capacity", "-f", "FILE", "default/huge", "-o", "json"],
    "capacity": ["capacity", "-f", "FILE", "default/huge"],
    "compare": ["compare", "-f", "FILE", "default", PACK, "--jobs", "1"],
    "compare JSON": ["compare", "-f", "FILE", "default", PACK, "--jobs", "1", "-o", "json"],
    "compare with --config": ["compare", "-f", "FILE", "--config", PACK, "default", "--jobs", "1"],
}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, str]:
    """Files with a pod that fits nowhere: of a cluster of v1.36, and of an unknown version."""
    objects = (make_node("a", cpu="2"), make_pod("huge", cpu="64"))
    found = {}
    for name, version in {"plain": "", OLD: "v1.36.2"}.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(encode_snapshot(objects, Header(server_version=version, kinds=("Node", "Pod"))))
        found[name] = str(path)
    return found


def printed(words: list[str], file: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([file if word == "FILE" else word for word in words]) in (0, 1)
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [*DECIDING.values(), *OTHERS.values()], ids=[*DECIDING, *OTHERS])
@pytest.mark.parametrize(
    ("source", "flags", "used"),
    [
        pytest.param("plain", [], NEW, id="the newest"),
        pytest.param(OLD, [], OLD, id="of the snapshot"),
        pytest.param(OLD, ["--emulated-version", NEW], NEW, id="of the flag"),
    ],
)
def test_the_release_that_is_used(
    sources: dict[str, str],
    words: list[str],
    source: str,
    flags: list[str],
    used: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Tables break long lines, and a comparison has a list of versions.
    output = "".join(printed([*words, *flags], sources[source], capsys).split()).replace("[", "")
    versions = [version for version in (OLD, NEW) if any(f"{way}{version}" in output for way in PREFIXES)]
    assert versions == [used]
    if words in DECIDING.values():
        assert (ONLY_OLD.replace(" ", "") in output) == (used == OLD)


@pytest.mark.parametrize(
    ("flags", "used", "first"),
    [
        ([], NEW, ["NodeName", "NodeUnschedulable"]),
        (["--emulated-version", OLD], OLD, ["NodeUnschedulable", "NodeName"]),
    ],
    ids=["default", "flag"],
)
def test_configurations(
    flags: list[str], used: str, first: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", *flags]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"# Kubernetes {used}\n")
    assert output.index(first[0]) < output.index(first[1])
    assert main(["config", "show", "--json", *flags]) == 0
    assert f'"kubernetesVersion": "{used}"' in capsys.readouterr().out
    assert main(["config", "check", PACK, *flags]) == 0
    assert capsys.readouterr().err == f"checked as Kubernetes {used}\n"


@pytest.mark.parametrize("flags", [[], ["--core"]], ids=["whole", "core"])
def test_benchmarks(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--nodes", "4", "--init-pods", "0", "--pods", "4"]
    for version, used in (([], NEW), (["--emulated-version", OLD], OLD)):
        assert main(["bench", "SchedulingBasic", *sizes, *flags, *version]) == 0
        assert f"; as Kubernetes {used} " in capsys.readouterr().out
        assert main(["bench", "SchedulingBasic", *sizes, *flags, *version, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kubernetes_version"] == used


def test_up_reads_the_configuration_as_the_version_of_the_snapshot(
    sources: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An argument that only v1.37 has is an error then."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles:\n"
        "- pluginConfig:\n"
        "  - {name: VolumeBinding, args: {shape: [{utilization: 0, score: 5}]}}\n"
    )
    assert main(["up", "-f", sources[OLD], "--config", str(file)]) == 2
    assert "shape" in capsys.readouterr().err
    assert main(["config", "check", str(file)]) == 0
