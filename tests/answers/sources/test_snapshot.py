"""A snapshot is read as it was written, also after edits, and can be redacted without changing decisions."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bayplan.answers.explain.explanation import Explanation, explain
from bayplan.answers.explain.rejections import rejections
from bayplan.answers.sources.files import read_cluster, read_scenario
from bayplan.answers.sources.loaded import LoadedCluster, Origin
from bayplan.answers.sources.redaction import LAST_APPLIED, redacted, without_manifests
from bayplan.answers.sources.snapshot import Header, encode_snapshot, header_of
from bayplan.answers.sources.templates import TEMPLATE_DIGEST, template_digest
from bayplan.answers.sources.warnings import Reason, Warning
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod, PodStatus
from bayplan.api.releases import V1_36
from bayplan.api.workloads import Deployment, ResourceQuota
from bayplan.cli.main import main
from bayplan.errors import DecodeError, InputError
from bayplan.testing.builders import make_node, make_pod, make_pvc
from tests.recorded.compare import read_lines
from tests.recorded.test_vectors import FILES

HEADER = Header(server_version="v1.36.0", kinds=("Node", "Pod", "PersistentVolumeClaim"))


def stored(item: Object) -> Object:
    metadata = msgspec.structs.replace(item.metadata, uid=f"uid-{item.key}", resource_version="1")
    return msgspec.structs.replace(item, metadata=metadata)


NODES = (make_node("n1", cpu="4"), make_node("n2"))
OBJECTS = [stored(item) for item in (*NODES, make_pod("a", node="n1"), make_pod("b"))]


def write(path: Path, objects: list[Object], header: Header = HEADER) -> str:
    path.write_bytes(encode_snapshot(objects, header))
    return str(path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    loaded = read_cluster([write(tmp_path / "s.json", OBJECTS)])
    assert loaded.objects == OBJECTS
    assert (loaded.origin, loaded.server_version, loaded.release) == (Origin.SNAPSHOT, "v1.36.0", V1_36)
    assert loaded.listed == {"Node", "Pod", "PersistentVolumeClaim"}


def test_an_edited_snapshot_is_read_as_a_dump_with_its_header(tmp_path: Path) -> None:
    """A pod that was added by hand gets the defaults of an API server."""
    path = tmp_path / "s.json"
    content = json.loads(encode_snapshot(OBJECTS, HEADER))
    content["items"].append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {}})
    path.write_text(json.dumps(content, indent=1))
    loaded = read_cluster([str(path)])
    assert [item.key for item in loaded.objects] == ["n1", "n2", "default/a", "default/b", "default/new"]
    pod = loaded.objects[-1]
    assert isinstance(pod, Pod)
    assert pod.spec.scheduler_name == "default-scheduler"
    assert (loaded.origin, loaded.listed) == (Origin.SNAPSHOT, frozenset(HEADER.kinds))


def test_a_manifest_beside_a_snapshot(tmp_path: Path) -> None:
    snapshot = write(tmp_path / "s.json", OBJECTS)
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c}]}\n")
    loaded = read_cluster([snapshot, str(manifest)])
    assert [pod.key for pod in loaded.pending(loaded.core())] == ["default/b", "default/new"]
    assert loaded.origin is Origin.SNAPSHOT
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {}\n")
    with pytest.raises(InputError, match="Pod b: the object is in two files"):
        read_cluster([snapshot, str(manifest)])


def test_two_snapshots_of_one_cluster(tmp_path: Path) -> None:
    files = [write(tmp_path / name, OBJECTS) for name in ("a.json", "b.json")]
    with pytest.raises(InputError, match="Node n1: the object is in two files"):
        read_cluster(files)


def test_warnings_of_a_redacted_snapshot_contain_no_names() -> None:
    warnings = (
        Warning('pods is forbidden: User "alice"', reason=Reason.MISSING_KIND, object="csinodes"),
        Warning("Node secret cannot be read", reason=Reason.UNREADABLE_OBJECT, object="Node secret"),
    )
    loaded = LoadedCluster("secret", [], warnings=warnings)
    content = encode_snapshot([], header_of(loaded, "1", redacted=True))
    assert b"alice" not in content
    assert b"secret" not in content
    assert b"csinodes could not be listed" in content
    assert b"alice" in encode_snapshot([], header_of(loaded, "1"))


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with pytest.raises(DecodeError, match=r"s\.json: the snapshot has format 2; .* update bayplan"):
        read_cluster([write(path, OBJECTS, Header(format_version=2))])
    broken = stored(make_pod("c", cpu="1x"))
    with pytest.raises(InputError, match=r"s\.json:1: Pod default/c: spec.containers\[0\].*1x"):
        read_cluster([write(path, [*OBJECTS, broken])])
    with pytest.raises(DecodeError, match=r"s\.json:\d+: Pod default/b: the object occurs twice"):
        read_cluster([write(path, [*OBJECTS, OBJECTS[-1]])])
    path.write_bytes(encode_snapshot(OBJECTS, HEADER).replace(b'"nodeName":"n1"', b'"nodeName":"\xff"'))
    with pytest.raises(DecodeError, match=r"s\.json:\d+: it is not UTF-8 text"):
        read_cluster([str(path)])


def snapshot(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main(["snapshot", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_the_command_overwrites_only_with_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write(tmp_path / "s.json", OBJECTS), tmp_path / "t.json.gz"
    assert snapshot(capsys, "-f", source, "--to", target) == (
        0,
        f"{target}: 2 nodes, 2 pods, 4 objects in all\n",
    )
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    first = gzip.decompress(target.read_bytes())
    assert read_cluster([str(target)]).objects == OBJECTS
    status, text = snapshot(capsys, "-f", source, "--to", target)
    assert (status, text) == (2, f"error: {target}: the file exists; pass --overwrite to replace it\n")
    assert gzip.decompress(target.read_bytes()) == first
    assert snapshot(capsys, "-f", source, "--to", target, "--overwrite")[0] == 0


def test_manifests_in_annotations_are_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kubectl's annotation contains environment variables."""
    pod = stored(make_pod("a", annotations={LAST_APPLIED: '{"env": "hunter2"}', "mine": "kept"}))
    source, target = write(tmp_path / "s.json", [pod]), tmp_path / "t.json"
    assert snapshot(capsys, "-f", source, "--to", target)[0] == 0
    assert b"hunter2" not in target.read_bytes()
    assert read_cluster([str(target)]).objects[0].annotations == {"mine": "kept"}


# Redaction


def outcome(case: LoadedCluster) -> list[tuple[Any, ...]]:
    core = case.core()
    return [_essence(explain(core.frameworks[pod.spec.scheduler_name], pod)) for pod in case.pending(core)]


def _essence(found: Explanation) -> tuple[Any, ...]:
    """A decision without names: the position of nodes instead."""
    position = {name: number for number, name in enumerate(found.nodes)}
    victims = [
        (position[node], len(one.victims), one.pdb_violations)
        for node, one in (found.preemption.candidates if found.preemption else {}).items()
    ]
    rejected = [
        (group.status.plugin, sorted(map(position.__getitem__, group.nodes))) for group in rejections(found)
    ]
    return (
        position.get(found.chosen),
        rejected,
        {position[node]: total for node, total in found.total.items()},
        victims,
        bool(found.error),
    )


@pytest.mark.parametrize("name", FILES)
def test_redaction_changes_no_decision(name: str) -> None:
    release, path = FILES[name]
    for vector in list(read_lines(path))[::40]:
        scenario = vector["scenario"]
        case = read_scenario(scenario, release=release)
        pods = list(case.pods or ())
        changed = redacted([*case.objects, *pods])
        others, waiting = changed[: len(case.objects)], changed[len(case.objects) :]
        hidden = LoadedCluster(
            "",
            others,
            [pod for pod in waiting if isinstance(pod, Pod)],
            config=case.config,
            release=release,
        )
        assert outcome(hidden) == outcome(case), scenario["name"]


def test_nothing_private_is_left() -> None:
    secret = "acme-payments"
    texts = {secret: secret}
    pod = make_pod(secret, labels=texts, annotations=texts, image=f"{secret}/app:v1", claims=[secret])
    pod = msgspec.structs.replace(pod, status=PodStatus(nominated_node_name=secret))
    found = redacted([make_node(secret, labels={f"{secret}.example/x": secret}), pod, make_pvc(secret)])
    assert secret.encode() not in encode_snapshot(found, HEADER)
    names = {item.name for item in found}
    assert len(names) == 1, "equal names stay equal"


SECRETIVE: dict[str, Any] = {
    "replicas": 2,
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
    "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "KEY", "value": "hunter2"}]}]},
    },
}


def test_templates_are_saved_without_environment_variables() -> None:
    """The hash of the whole template is saved, so that a manifest can be compared with it."""
    deployed = Deployment(metadata=ObjectMeta(name="web", namespace="shop"), spec=SECRETIVE)
    saved = without_manifests(deployed)
    assert isinstance(saved, Deployment)
    assert b"hunter2" not in msgspec.json.encode(saved)
    assert saved.spec["template"]["spec"]["containers"] == [{"name": "c", "image": "i"}]
    assert saved.annotations[TEMPLATE_DIGEST] == template_digest(SECRETIVE["template"])
    assert without_manifests(saved) == saved


def test_a_redacted_workload_can_still_be_rolled_out() -> None:
    quota = ResourceQuota(metadata=ObjectMeta(name="q", namespace="shop"), spec={"hard": {"cpu": "10"}})
    deployment, kept = redacted([Deployment(metadata=ObjectMeta(name="web"), spec=SECRETIVE), quota])
    assert isinstance(deployment, Deployment)
    assert isinstance(kept, ResourceQuota)
    assert deployment.spec["strategy"] == SECRETIVE["strategy"]
    assert kept.spec == {"hard": {"cpu": "10"}}
    assert b"hunter2" not in msgspec.json.encode(deployment)
