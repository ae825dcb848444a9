"""A recording shows what was recorded; simulations and recordings are histories like any other."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import Counter
from pathlib import Path

import pytest

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.api.groups import PodGroup
from bayplan.api.meta import Object, ObjectMeta
from bayplan.api.pod import Pod
from bayplan.api.releases import DEFAULT_RELEASE
from bayplan.api.workloads import PodGroup as CoschedulingPodGroup
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.manifests import read_manifests
from bayplan.embedded.up.report import Outcomes
from bayplan.errors import InputError
from bayplan.process.history import History
from bayplan.process.recording import Recorder, read_recording
from bayplan.testing import SchedulingCore, make_node, make_pod
from bayplan.ui.hub import MAX_SAMPLES, Hub
from bayplan.ui.serving import PageOfCluster, recording
from bayplan.ui.sources import from_recording, from_scenario

EMPTY = LoadedCluster("", ())
ROOT = Path(__file__).parents[2]


def run_through(history: History) -> None:
    core = SchedulingCore()
    core.load([make_node("a", cpu="1")])
    pod = make_pod("web", cpu="1")
    history.put(pod)
    history.decided(core.decide(pod))
    history.put(make_pod("web", cpu="1", node="a"))
    history.decided(core.decide(make_pod("big", cpu="9")))
    history.remove((Pod, pod.key))


@pytest.mark.parametrize("name", ["file.jsonl", "file.jsonl.gz"])
def test_a_recording_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    history = History(time.time)
    history.begin(
        [
            make_node("a", cpu="1"),
            make_pod(
                "old",
                annotations={"kubectl.kubernetes.io/last-applied-configuration": "password", "kept": "1"},
            ),
        ]
    )
    recorder = Recorder(tmp_path / name, release="1.37", name="prod")
    recorder.begin(history)
    history.on_entry = recorder.add
    run_through(history)
    recorder.flush()
    recorder.close()
    raw = (tmp_path / name).read_bytes()
    text = gzip.decompress(raw) if name.endswith("gz") else raw
    assert b"password" not in text
    assert b'"kept"' in text
    subject, hub = from_recording(tmp_path / name, EMPTY)
    assert (subject.name, subject.kind, subject.release.version) == ("prod", "recording", "1.37")
    read = hub.history
    assert (read.last, read.scheduled, read.failed) == (history.last, 1, 1)
    for seq in range(history.dropped, history.last + 1):
        assert list(read.objects_at(seq)) == list(history.objects_at(seq))
    assert [one.message for one in read.attempts()] == [one.message for one in history.attempts()]
    assert hub.samples.items


def test_a_recording_ends_when_it_is_full(tmp_path: Path) -> None:
    history = History(time.time)
    recorder = Recorder(tmp_path / "file", release="1.37", name="", max_bytes=2000)
    recorder.begin(history)
    history.on_entry = recorder.add
    for number in range(100):
        history.put(make_pod(f"p{number}"))
    recorder.close()
    assert recorder.has_ended
    assert (tmp_path / "file").stat().st_size < 2100
    _, hub = from_recording(tmp_path / "file", EMPTY)
    assert 0 < hub.history.last < 100


def test_kinds_of_the_same_name_stay_apart(tmp_path: Path) -> None:
    history = History(time.time)
    meta = ObjectMeta(name="g", namespace="default")
    groups = [PodGroup(metadata=meta), CoschedulingPodGroup(metadata=meta)]
    history.begin(groups)
    recorder = Recorder(tmp_path / "file", release="1.37", name="")
    recorder.begin(history)
    recorder.close()
    assert list(from_recording(tmp_path / "file", EMPTY)[1].history.objects.values()) == groups


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"", "not a recording", id="empty"),
        pytest.param(b'{"put": "Pod"}\n', "not a recording", id="no header"),
        pytest.param(b'{"recording": {"formatVersion": 2}}\n', "update bayplan", id="a newer format"),
        pytest.param(
            b'{"recording": {"formatVersion": 1}}\n{"put": "Nothing", "object": {}}\n', "line 2", id="kind"
        ),
        pytest.param(b'{"recording": {"formatVersion": 1}}\n{"put": 1}\n', "line 2", id="type"),
        pytest.param(
            b'{"recording": {"formatVersion": 1}}\n{"attempt": {"result": "x"}}\n', "line 2", id="result"
        ),
        pytest.param(b"\x1f\x8bxx", "cannot be read", id="damaged"),
    ],
)
def test_what_is_no_recording(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        from_recording(file, EMPTY)


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(
        b'{"recording": {"formatVersion": 1}}\n'
        b'{"put": "Pod", "object": {"metadata": {"name": "p"}}}\n{"put": "Po'
    )
    header, entries = read_recording(file)
    assert header.format_version == 1
    assert len(list(entries)) == 1
    assert len(from_recording(file, EMPTY)[1].history.objects) == 1


def test_a_live_history_is_recorded_until_it_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        history = History(time.time)
        hub = Hub(history, DEFAULT_RELEASE.accounting.assigned_requests)
        async with recording(hub, tmp_path / "file", release="1.37", name="x"):
            run_through(history)
        assert hub.viewers == 0
        with pytest.raises(InputError, match="cannot be written"):
            async with recording(hub, tmp_path / "none" / "file", release="1.37", name="x"):
                pass

    asyncio.run(main())
    assert from_recording(tmp_path / "file", EMPTY)[1].history.last == 5


@pytest.mark.long
def test_the_rollout_of_the_examples_is_recorded_from_the_start(tmp_path: Path) -> None:
    """Every decision is there; twelve pods of version 1 are replaced by twelve of version 2."""
    file, parts = tmp_path / "rollout.jsonl.gz", ROOT / "examples" / "rollout"

    async def main() -> None:
        page, settings = PageOfCluster(), LocalSettings(nodes=6)
        async with LocalCluster(settings, Outcomes()) as cluster:
            hub = page.attach(cluster, settings, "bayplan")
            async with recording(hub, file, release="1.37", name="rollout"):
                for documents in read_manifests([str(parts / "before.yaml"), str(parts / "after.yaml")]):
                    for document in documents:
                        del document.content["spec"]["minReadySeconds"]
                    await cluster.apply(documents)
                    await cluster.idle()
            await hub.close()

    asyncio.run(main())
    history = from_recording(file, EMPTY)[1].history

    def versions(seq: int) -> Counter[str]:
        pods = [one for one in history.state_at(seq).values() if isinstance(one, Pod)]
        return Counter(pod.labels["version"] for pod in pods)

    assert versions(0) == {}
    assert versions(history.last) == {"v2": 12}
    assert len({one.uid for one in history.attempts()}) == 24


def test_a_simulation_is_a_history(tmp_path: Path) -> None:
    scenario = tmp_path / "day.yaml"
    scenario.write_text(
        "apiVersion: bayplan/v1\nkind: Scenario\nmetadata: {name: short}\nduration: 1h\n"
        "cluster: {nodes: [{name: worker, count: 2, allocatable: {cpu: '2', memory: 8Gi, pods: '10'}}]}\n"
        "workloads:\n- name: web\n  kind: Deployment\n  replicas: 5\n  template: {spec: {containers: "
        "[{name: c, resources: {requests: {cpu: '1'}}}]}}\n"
    )
    kinds: list[type[Object]] = [kind.record for kind in read_kinds()]
    subject, hub = from_scenario(scenario, EMPTY, kinds)
    assert (subject.name, subject.kind) == ("short", "simulation")
    assert hub.history.scheduled == 4
    assert hub.overview.assigned == 4
    assert hub.overview.pending == 1
    assert hub.history.time_of(hub.history.last) <= hub.history.now


def test_samples_are_bounded() -> None:
    history = History(time.time)
    hub = Hub(history, DEFAULT_RELEASE.accounting.assigned_requests)
    for second in range(10 * MAX_SAMPLES):
        hub.samples.add(history, hub.overview, float(second))
    assert MAX_SAMPLES // 3 < len(hub.samples.items) <= MAX_SAMPLES
