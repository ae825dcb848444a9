"""`bayplan whatif` and `bayplan capacity`: changes in order, results, exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.cli.main import main

ROOT = Path(__file__).parents[2]
CLUSTER = str(ROOT / "examples/whatif/cluster.yaml")
CHECKOUT = str(ROOT / "examples/whatif/checkout.yaml")


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = main([words[0], "-f", CLUSTER, *words[1:], "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def nodes_of(answer: Any) -> dict[str, str]:
    return {pod["pod"]: pod["node"] for pod in answer["pods"] if "node" in pod}


def test_without_changes_the_pending_pods_are_scheduled(capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = run_json(capsys, "whatif")
    assert (status, list(nodes_of(answer)), answer["fits"]) == (0, ["shop/report"], True)


def test_changes_are_made_in_the_given_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of one name are not moved together."""
    first = run_json(capsys, "whatif", "--cordon", "n2", "--drain", "n1", "--cordon", "n3", "--add", CHECKOUT)
    kinds = [change.split(":")[0] for change in first[1]["changes"]]
    assert kinds == ["cordon n2", "drain n1", "cordon n3", f"apply {CHECKOUT}"]


def test_a_config_applies_from_where_it_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pack = str(ROOT / "examples/pack.yaml")
    spread = nodes_of(run_json(capsys, "whatif", "--add", f"{CHECKOUT}=3")[1])
    packed = nodes_of(run_json(capsys, "whatif", "--add", f"{CHECKOUT}=3", "--new-config", pack)[1])
    assert spread != packed


def test_what_does_not_fit_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = run_json(capsys, "whatif", "--add", f"{CHECKOUT}=6")
    rejected = [pod for pod in answer["pods"] if pod["outcome"] == "Unschedulable"]
    assert (status, len(rejected)) == (1, 3)
    assert all("Insufficient cpu" in pod["reason"] for pod in rejected)


def test_workloads_scale_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    up = nodes_of(run_json(capsys, "whatif", "--scale", "shop/web=6")[1])
    assert len([pod for pod in up if pod.startswith("shop/web-7d8f-new-")]) == 2
    status, down = run_json(
        capsys, "whatif", "--scale", "shop/web=1", "--drain", "n1", "--drain", "n2", "--drain", "n3"
    )
    moved = [pod for pod in nodes_of(down) if pod.startswith("shop/web")]
    assert len(moved) <= 1, "of two pods on n1 one is deleted first"
    assert status == 1


@pytest.mark.parametrize(
    ("replicas", "change"),
    [
        (0, "scale shop/web to 0: 4 pods deleted"),
        (3, "scale shop/web to 3: 1 pod deleted"),
        (4, "scale shop/web to 4: no change"),
        (5, "scale shop/web to 5: 1 pod created"),
    ],
)
def test_scaling_counts_the_pods_it_creates_and_deletes(
    capsys: pytest.CaptureFixture[str], replicas: int, change: str
) -> None:
    assert run_json(capsys, "whatif", "--scale", f"shop/web={replicas}")[1]["changes"] == [change]


def test_pods_that_are_created_together_come_in_the_order_of_their_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = run_json(capsys, "whatif", "--scale", "shop/web=16", "--ignore-pending")[1]
    names = [pod["pod"] for pod in answer["pods"]]
    assert names == [f"shop/web-7d8f-new-{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("wanted", "cpu", "status", "result"),
    [
        (2, "1", 0, "2 more pods wanted: they fit"),
        (1, "1", 0, "1 more pod wanted: it fits"),
        (9, "2", 1, "9 more pods wanted: only 1 fits"),
        (9, "1", 1, "9 more pods wanted: only 4 fit"),
        (2, "99", 1, "2 more pods wanted: none fits"),
        (1, "99", 1, "1 more pod wanted: it does not fit"),
    ],
)
def test_whether_the_wanted_pods_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wanted: int, cpu: str, status: int, result: str
) -> None:
    containers = [{"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod))
    assert main(["capacity", str(file), "-f", CLUSTER, "--for", str(wanted)]) == status
    assert result in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--drain", "nope"], "no node 'nope'"),
        (["--scale", "shop/web"], "write NAMESPACE/NAME=N"),
        (["--scale", "shop/none=3"], "add its manifest instead"),
        (["--add-nodes", "n1"], "write N or N=LIKE"),
        (["--add-nodes", "2="], "write N or N=LIKE"),
        (["--add-nodes", "2=none"], "neither a node of the cluster"),
        (["--add-nodes", "2=cpu=x"], "not a machine shape"),
        (["--add-nodes", "99999999=n1"], "the limit is"),
        (["--scale", "shop/web=99999999"], "the limit is"),
        (["--add", "nowhere.yaml"], "nowhere.yaml"),
        (["--new-config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_bad_input_is_status_2(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "-f", CLUSTER, *words]) == 2
    assert problem in capsys.readouterr().err


PLUGINS = """
from bayplan.plugin import NodePlugin, Plugin

class Raises(NodePlugin):
    def filter_node(self, state, pod, node):
        return node.labels["nope"]

class Fails(Plugin):
    def filter(self, state, pod, nodes):
        raise ValueError("no backend")

class WrongScore(NodePlugin):
    def score_node(self, state, pod, node):
        return 1.5

class RaisesAtPreEnqueue(Plugin):
    def pre_enqueue(self, pod):
        return pod.labels["nope"]

class RaisesAtPostFilter(Plugin):
    def post_filter(self, state, pod, outcome):
        raise ValueError("no candidates")

class RaisesAtPermit(Plugin):
    def permit(self, state, pod, node_name):
        raise ValueError("no permission")
"""


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ("Raises", "KeyError: 'nope' (broken.py:6, in filter_node)"),
        ("Fails", "ValueError: no backend"),
        ("WrongScore", "score_node returned 1.5"),
        ("RaisesAtPreEnqueue", "KeyError: 'nope'"),
        ("RaisesAtPostFilter", "ValueError: no candidates"),
        ("RaisesAtPermit", "ValueError: no permission"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["whatif", "--add", f"{CHECKOUT}=9"],
        ["capacity", CHECKOUT],
        ["capacity", CHECKOUT, "--for", "9", "--nodes", "n1"],
        ["compare", "default", "--jobs", "1", "--add", f"{CHECKOUT}=9"],
    ],
    ids=" ".join,
)
def test_a_plugin_that_fails_is_status_2(
    plugin: str, problem: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script must not take such a result for an answer. The failure is one message, not a log."""
    (tmp_path / "broken.py").write_text(PLUGINS)
    words = [command[0], "-f", CLUSTER, *command[1:], "--plugin", f"{tmp_path}/broken.py:{plugin}"]
    assert main([*words, "-o", "json"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: the result is not reliable, because a plugin failed:\n  pod shop/")
    assert problem in printed.err
    assert "Traceback" not in printed.err
    assert any(problem in failure for failure in json.loads(printed.out)["failures"])
    assert main([*words, "--traceback"]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("Traceback (most recent call last)") == (0 if plugin == "WrongScore" else 1)


MANIFESTS = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: batch/v1
kind: Job
metadata: {name: crunch, namespace: shop}
spec:
  parallelism: 3
  completions: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: shop}
spec: {priorityClassName: urgent, containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}
"""


def test_workloads_become_pods_with_claims_and_priorities(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(MANIFESTS)
    status, answer = run_json(capsys, "whatif", "--add", str(file))
    nodes = nodes_of(answer)
    assert {"shop/store-0", "shop/store-1", "shop/crunch-0", "shop/crunch-1", "shop/alone"} <= set(nodes)
    assert "shop/crunch-2" not in nodes
    assert answer["evicted"], "its priority class lets it preempt"
    assert status in (0, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: d}", "spec.selector: Required value"),
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {name: d}\nspec: {parallelism: x, template: {a: 1}}",
            "cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        ("kind: Job\napiVersion: batch/v1\nmetadata: {name: j}\nspec: [1]", "cannot unmarshal array"),
        ("kind: Job\napiVersion: batch/v1\nmetadata: [j]\nspec: {template: {}}", "expected a mapping"),
        (
            "kind: StatefulSet\napiVersion: apps/v1\nmetadata: {name: s}\n"
            "spec: {template: {spec: {}}, volumeClaimTemplates: [7]}",
            "cannot unmarshal number",
        ),
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {name: j}\nspec: {parallelism: 99999999, "
            "completions: 99999999, template: {spec: {restartPolicy: Never, "
            "containers: [{name: c, image: i}]}}}",
            "too many",
        ),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}", "no pod and no workload"),
    ],
)
def test_a_manifest_that_is_refused(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    assert main(["whatif", "-f", CLUSTER, "--add", str(file)]) == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert "m.yaml" in printed


WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: %s
  strategy: {rollingUpdate: {maxSurge: %s, maxUnavailable: %s}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "registry.example/web:%s", resources: {requests: {cpu: "%s", memory: 1Gi}}}
"""


@pytest.mark.parametrize(
    ("fields", "status", "change", "texts"),
    [
        pytest.param(
            (4, 1, 0, 1, "500m"), 0, {"change": "unchanged"}, ["apply {file}: 1 unchanged"], id="unchanged"
        ),
        pytest.param(
            (6, 1, 0, 1, "500m"), 0, {"change": "changed", "created": 2}, ["2 pods created"], id="scaled"
        ),
        pytest.param(
            (4, 1, 0, 2, "500m"),
            0,
            {"change": "changed"},
            ["Deployment shop/web: the rollout completes (worst moment: 4 of 4 available)"],
            id="rolled out",
        ),
        pytest.param(
            (4, 1, 0, 2, "2500m"),
            1,
            {"change": "changed"},
            [
                "Deployment shop/web: the rollout stalls at 0 of 4: 0/4 nodes are available: ",
                "(worst moment: 4 of 4 available, 1 pending)",
            ],
            id="stalled",
        ),
    ],
)
def test_a_manifest_is_applied_to_what_is_there(
    fields: tuple[Any, ...],
    status: int,
    change: dict[str, Any],
    texts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(WEB % fields)
    found, answer = run_json(capsys, "whatif", "--ignore-pending", "--add", str(file))
    assert (found, answer["fits"]) == (status, status == 0)
    assert answer["applied"] == [{"kind": "Deployment", "object": "shop/web", **change}]
    assert [one["complete"] for one in answer["rollouts"]] in ([], [status == 0])
    assert main(["whatif", "-f", CLUSTER, "--ignore-pending", "--add", str(file)]) == status
    printed = capsys.readouterr().out
    assert all(text.format(file=file) in printed for text in texts)


LEFT_OUT = """
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: small, namespace: shop}
spec: {containers: [{name: c, image: i}]}
"""


@pytest.mark.parametrize("command", [["whatif", "--add"], ["capacity", "--at-most", "3"]], ids=" ".join)
def test_what_is_left_out_is_status_3(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(LEFT_OUT)
    status, answer = run_json(capsys, *command, str(file))
    assert status == 3
    assert answer["leftOut"][0]["object"] == "shop/web"
    assert main([command[0], "-f", CLUSTER, *command[1:], str(file)]) == 3
    assert "left out: Rollout (argoproj.io/v1alpha1) shop/web: " in capsys.readouterr().out


def test_nodes_are_added_like_the_usual_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = run_json(
        capsys, "whatif", "--cordon", "n1", "--add-nodes", "1=cpu=64,memory=1Ti", "--add-nodes", "2"
    )
    assert answer["changes"][-1] == "add 2 nodes like n2"


def test_pods_that_were_pending_before_can_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = run_json(capsys, "whatif", "--ignore-pending", "--add", CHECKOUT, "--drain", "n3")
    names = {pod["pod"] for pod in answer["pods"]}
    assert "shop/report" not in names
    assert {"shop/checkout-0", "shop/batch-1", "shop/web-7d8f-c"} <= names
    assert run_json(capsys, "whatif", "--ignore-pending")[1]["pods"] == []


def test_yaml_has_the_same_content_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = run_json(capsys, "whatif", "--drain", "n1")
    assert main(["whatif", "-f", CLUSTER, "--drain", "n1", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == answer


def test_a_claim_that_is_missing_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\n"
        "spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], "
        "containers: [{name: c, image: i}]}"
    )
    status, answer = run_json(capsys, "whatif", "--add", str(file))
    assert status == 1
    [warning] = [one for one in answer["warnings"] if one.get("pod") == "default/p"]
    assert warning["object"] == "PersistentVolumeClaim default/data"
    assert nodes_of(answer) == nodes_of(run_json(capsys, "whatif")[1])


# Capacity


def test_capacity_prints_how_many_fit_and_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = run_json(capsys, "capacity", CHECKOUT)
    assert (status, answer["count"], answer["isLimit"]) == (0, 4, True)
    assert answer["reason"] == "0/4 nodes are available: 4 Insufficient cpu."
    assert sum(answer["byNode"].values()) == 4


def test_capacity_for_a_number_of_pods(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_json(capsys, "capacity", CHECKOUT, "--for", "4")[0] == 0
    assert run_json(capsys, "capacity", CHECKOUT, "--for", "5")[0] == 1
    status, answer = run_json(capsys, "capacity", CHECKOUT, "--for", "20", "--nodes", "cpu=8,memory=32Gi")
    assert (status, answer["nodes"]["needed"]) == (0, 2)
    status, answer = run_json(capsys, "capacity", CHECKOUT, "--for", "20", "--nodes", "cpu=500m,memory=1Gi")
    assert (status, answer["nodes"]["needed"]) == (1, None)
    assert "Insufficient cpu" in answer["nodes"]["reason"]


def test_nodes_need_a_number_of_pods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "-f", CLUSTER, CHECKOUT, "--nodes", "n1"]) == 2
    assert "--nodes needs --for N" in capsys.readouterr().err


GROUPS = str(ROOT / "examples/groups.yaml")


def gang(tmp_path: Path, size: int, members: int | None = None, **spec: Any) -> str:
    """A manifest with a gang and the Job of its members."""
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}, **spec}
    container = {"name": "c", "image": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    named = {"schedulingGroup": {"podGroupName": "new"}, "restartPolicy": "Never", "containers": [container]}
    if "priorityClassName" in spec:
        named["priorityClassName"] = spec["priorityClassName"]
    count = size if members is None else members
    job = {"parallelism": count, "completions": count, "template": {"spec": named}}
    meta = {"name": "new", "namespace": "ml"}
    documents = [
        {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": policy},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job},
    ]
    file = tmp_path / f"gang-{size}.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def run_on_groups(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = main([words[0], "-f", GROUPS, *words[1:], "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_gang_is_added_all_or_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of 12 GPUs 6 are taken, and the pending gang takes the others and two of these."""
    _, alone = run_on_groups(capsys, "whatif")
    assert sum("node" in pod for pod in alone["pods"]) == 8
    _, answer = run_on_groups(capsys, "whatif", "--add-nodes", "1=gpu-1", "--add", gang(tmp_path, 5))
    new = [pod for pod in answer["pods"] if "/new-" in pod["pod"]]
    assert [pod["outcome"] for pod in new] == ["Unschedulable"] * 5
    assert "minCount (5) cannot be satisfied" in new[-1]["reason"]
    _, answer = run_on_groups(capsys, "whatif", "--add-nodes", "1=gpu-1", "--add", gang(tmp_path, 2))
    assert {pod["outcome"] for pod in answer["pods"] if "/new-" in pod["pod"]} == {"Scheduled"}


def test_members_that_wait_for_others_are_gated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, answer = run_on_groups(capsys, "whatif", "--add", gang(tmp_path, 5, members=3))
    new = [pod for pod in answer["pods"] if "/new-" in pod["pod"]]
    assert {(pod["outcome"], "GangScheduling" in pod["reason"]) for pod in new} == {("Gated", True)}


def test_a_group_with_an_unknown_class_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = gang(tmp_path, 2, priorityClassName="none")
    assert main(["whatif", "-f", GROUPS, "--add", file]) == 2
    assert "no PriorityClass with name none was found" in capsys.readouterr().err


def test_capacity_counts_gangs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for size, count in ((1, 6), (4, 1), (6, 1), (7, 0)):
        _, answer = run_on_groups(capsys, "capacity", gang(tmp_path, size))
        assert (answer["count"], answer["gangSize"]) == (count, size)
        assert sum(answer["byNode"].values()) == count * size
        assert "Insufficient nvidia.com/gpu" in answer["reason"]
    status, _ = run_on_groups(capsys, "capacity", gang(tmp_path, 4), "--for", "2")
    assert status == 1
    _, answer = run_on_groups(capsys, "capacity", gang(tmp_path, 4), "--for", "2", "--nodes", "gpu-1")
    assert answer["nodes"]["needed"] == 1


def test_a_gang_may_need_more_nodes_than_gangs_are_wanted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("capacity", gang(tmp_path, 30), "--for", "1", "--nodes")
    status, answer = run_on_groups(capsys, *arguments, "gpu-1")
    assert (status, answer["nodes"]["needed"]) == (0, 6)
    status, answer = run_on_groups(capsys, *arguments, "cpu=8,memory=32Gi")
    assert (status, answer["nodes"]["needed"]) == (1, None)


def test_objects_that_create_groups_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    template = {"name": "w", "schedulingPolicy": {"gang": {"minCount": 2}}}
    document = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ml"},
        "spec": {"podGroupTemplates": [template]},
    }
    file = tmp_path / "workload.yaml"
    file.write_text(yaml.safe_dump(document))
    status, answer = run_on_groups(capsys, "whatif", "--add", str(file))
    assert status in (1, 3)
    assert "add the PodGroups themselves" in str(answer["leftOut"])


def test_decide_decides_members_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", GROUPS, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["results"] == []
    (group,) = answer["groups"]
    assert (group["group"], group["victims"]) == ("ml/serve", ["ml/batch-1", "ml/batch-3"])


def test_the_first_composite_group_of_a_cluster_is_not_evaluated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its gate is off: without it each PodGroup would be scheduled alone. Nor are the members evaluated."""
    example = Path(GROUPS).with_name("composite.yaml")
    lines = example.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if "v1alpha3" in line)
    (tmp_path / "nodes.yaml").write_text("".join(lines[:first]))
    (tmp_path / "add.yaml").write_text("apiVersion: v1\nkind: List\nitems:\n" + "".join(lines[first:]))
    added = ["--add", str(tmp_path / "add.yaml"), "--emulated-version", "1.37"]
    why = "composite groups are evaluated only if the cluster has one already"
    assert main(["whatif", "-f", str(tmp_path / "nodes.yaml"), *added, "-o", "json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert [one["reason"] for one in answer["leftOut"]] == [why] * 6
    assert {one["outcome"] for one in answer["pods"]} == {"Skipped"}
    assert answer["pods"][0]["reason"] == f"its PodGroup ml/decoder was left out: {why}"
    assert main(["whatif", "-f", str(example), *added]) == 1
    output = capsys.readouterr().out
    assert why not in output
    assert "4 pods scheduled, 3 not" in output
