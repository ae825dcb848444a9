"""A cluster from files or from an API server becomes one value with its missing parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayplan.answers.sources import loading
from bayplan.answers.sources.loaded import Origin
from bayplan.answers.sources.loading import SchedulerSettings, SourceOptions, default_kubeconfig, load_cluster
from bayplan.answers.sources.warnings import Reason
from bayplan.api.releases import DEFAULT_RELEASE, RELEASES
from bayplan.errors import ConfigError, InputError

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_several_files_are_one_cluster(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.json", {"apiVersion": "v1", "kind": "List", "items": [NODE]})
    pods = write(tmp_path / "pods.yaml", f"{json.dumps(POD)}\n---\n")
    loaded = load_cluster(SourceOptions((nodes, pods)))
    assert [(type(one).__name__, one.key) for one in loaded.objects] == [("Node", "n"), ("Pod", "default/p")]
    assert (loaded.origin, loaded.listed, loaded.server_version) == (Origin.FILES, frozenset(), "")
    core = loaded.core()
    assert [pod.key for pod in loaded.pending(core)] == ["default/p"]


def test_an_object_in_two_files(tmp_path: Path) -> None:
    files = [write(tmp_path / name, POD) for name in ("a.json", "b.json")]
    with pytest.raises(InputError, match=r"b\.json:1: Pod p: the object occurs twice"):
        load_cluster(SourceOptions(tuple(files)))


def test_scenarios_are_not_clusters(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only `bayplan decide` reads them"):
        load_cluster(SourceOptions((write(tmp_path / "a.json", {"objects": [], "pods": []}),)))


def test_standard_input_twice() -> None:
    with pytest.raises(InputError, match="only once"):
        load_cluster(SourceOptions(("-",), config_file="-"))


def test_plugins_and_extenders_that_are_not_there(tmp_path: Path) -> None:
    """They are named in warnings, and everything else of the configuration is used."""
    config = write(
        tmp_path / "config.yaml",
        f"{CONFIG}extenders:\n- {{urlPrefix: 'https://a.example', filterVerb: f}}\n"
        "profiles:\n- schedulerName: mine\n  plugins:\n    score: {enabled: [{name: Custom, weight: 5}]}\n"
        "    multiPoint: {enabled: [{name: Elsewhere}]}\n  pluginConfig:\n  - {name: Custom, args: {a: 1}}\n",
    )
    loaded = load_cluster(SourceOptions((write(tmp_path / "n.json", NODE),), config_file=config))
    assert [(one.reason, one.object) for one in loaded.warnings] == [
        (Reason.ABSENT_PLUGIN, "Custom"),
        (Reason.ABSENT_PLUGIN, "Elsewhere"),
        (Reason.NOT_RUN, "https://a.example"),
    ]
    assert list(loaded.core().frameworks) == ["mine"]


def test_an_invalid_configuration_names_its_file(tmp_path: Path) -> None:
    config = write(tmp_path / "config.yaml", f"{CONFIG}parallelism: 0\n")
    with pytest.raises(ConfigError, match=r"^\S+config\.yaml: parallelism"):
        load_cluster(SourceOptions((write(tmp_path / "n.json", NODE),), config_file=config))


def test_the_kubeconfig_of_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"pass -f FILE, or --kubeconfig FILE"):
        default_kubeconfig({})
    (tmp_path / ".kube").mkdir()
    default = write(tmp_path / ".kube" / "config", "")
    assert default_kubeconfig({}) == default
    other = write(tmp_path / "other", "")
    assert default_kubeconfig({"KUBECONFIG": f"{tmp_path}/none:{other}"}) == other
    with pytest.raises(InputError):
        default_kubeconfig({"KUBECONFIG": f"{tmp_path}/none"})
    first = write(tmp_path / "first", {"current-context": "b", "contexts": [{"name": "a"}]})
    second = write(tmp_path / "second", {"contexts": [{"name": "b"}]})
    both = {"KUBECONFIG": f"{first}:{second}"}
    assert (default_kubeconfig(both), default_kubeconfig(both, "a")) == (second, first)


def test_a_configuration_is_read_as_the_release_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not be valid as the default release, which the cluster does not have."""
    real = loading._read_settings

    def only_as_older(*arguments: Any) -> SchedulerSettings:
        if any(one is DEFAULT_RELEASE for one in arguments):
            raise ConfigError("not in this release")
        return real(*arguments)

    monkeypatch.setattr(loading, "_read_settings", only_as_older)
    config = write(tmp_path / "config.yaml", CONFIG)
    older = next(one for one in RELEASES.values() if one is not DEFAULT_RELEASE)
    for release, is_valid in ((older, True), (DEFAULT_RELEASE, False)):
        header = {"formatVersion": 1, "serverVersion": f"v{release.version}.0"}
        content = {"apiVersion": "v1", "kind": "List", "snapshot": header, "items": []}
        options = SourceOptions((write(tmp_path / "s.json", content),), config_file=config)
        if is_valid:
            assert load_cluster(options).release is release
        else:
            with pytest.raises(ConfigError, match="not in this release"):
                load_cluster(options)


@pytest.mark.parametrize(
    ("versions", "arguments", "expected"),
    [
        pytest.param(["v1.30.2", "v1.29.0"], {}, ["v1.30.2"], id="all are older"),
        pytest.param(["v1.30.2", f"v{DEFAULT_RELEASE.version}.1"], {}, [], id="one has the version"),
        pytest.param(["v1.99.0-eks-1"], {}, ["v1.99.0-eks-1"], id="one is newer"),
        pytest.param(["v1.9.0", "v1.10.0"], {}, ["v1.10.0"], id="versions are numbers"),
        pytest.param(["", "fake"], {}, [], id="none is known"),
        pytest.param(["v1.30.2"], {"release": DEFAULT_RELEASE}, [], id="the user has named a version"),
    ],
)
def test_kubelets_of_another_version_than_the_rules_are_reported(
    versions: list[str], arguments: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}"},
            "status": {"nodeInfo": {"kubeletVersion": version}},
        }
        for i, version in enumerate(versions)
    ]
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    loaded = load_cluster(SourceOptions((str(file),), **arguments))
    assert [one.object for one in loaded.warnings if one.reason is Reason.OTHER_VERSION] == expected
