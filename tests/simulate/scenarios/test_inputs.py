"""Arrivals, run times and traces."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean, median

import pytest

from bayplan.errors import InputError
from bayplan.plugins.library.gpu_sharing.request import GPU_COUNT, GPU_MILLI, GPU_MODEL
from bayplan.simulate.scenarios.inputs import arrival_times, drawing, generator, read_trace
from bayplan.simulate.scenarios.result import make_result
from bayplan.simulate.scenarios.run import simulate
from bayplan.simulate.scenarios.schema import Arrivals, Distribution, Lognormal, Rate, Uniform

from .building import load, nodes

DAY = 86400.0


@pytest.mark.parametrize(
    ("arrivals", "times"),
    [
        pytest.param(Arrivals(), [0], id="once, at the start"),
        pytest.param(Arrivals(start="5m"), [300], id="once, later"),
        pytest.param(Arrivals(at=("1h", "0s", "48h")), [0, 3600], id="at given times, until the end"),
        pytest.param(Arrivals(constant=Rate(every="8h")), [0, 28800, 57600], id="at a constant rate"),
        pytest.param(Arrivals(constant=Rate(per_hour=0.25), count=2), [0, 14400], id="a limited number"),
        pytest.param(
            Arrivals(constant=Rate(every="1h"), start="2h", end="4h"), [7200, 10800], id="from start to end"
        ),
    ],
)
def test_arrivals(arrivals: Arrivals, times: list[float]) -> None:
    assert list(arrival_times(arrivals, generator(0), DAY)) == times


def test_poisson_arrivals_have_their_rate() -> None:
    times = list(arrival_times(Arrivals(poisson=Rate(per_hour=100)), generator(1, "w"), DAY))
    assert 2300 < len(times) < 2500
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert mean(gaps) == pytest.approx(36, rel=0.05)
    assert sum(gap > 36 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_distributions() -> None:
    def sample(times: str | Distribution) -> list[float]:
        draw, rng = drawing(times), generator(1)
        return [draw(rng) for _ in range(4000)]

    assert set(sample("5m")) == set(sample(Distribution(fixed="5m"))) == {300}
    assert mean(sample(Distribution(exponential="10m"))) == pytest.approx(600, rel=0.05)
    uniform = sample(Distribution(uniform=Uniform(min="1m", max="2m")))
    assert 60 <= min(uniform) < 62
    assert 118 < max(uniform) <= 120
    assert median(sample(Distribution(lognormal=Lognormal(median="10m", sigma=1)))) == pytest.approx(
        600, rel=0.1
    )


def test_generators_depend_on_the_name() -> None:
    """So that another workload does not change the arrivals of this one."""
    assert generator(1, "a").random() == generator(1, "a").random() != generator(1, "b").random()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_trace_is_simulated(tmp_path: Path) -> None:
    write(
        tmp_path / "jobs.csv",
        "arrival,runtime,cpu,memory,count,nvidia.com/gpu,priority\n60,600,2,1Gi,2,,\n30,,500m,,,1,5\n",
    )
    group = nodes(2)
    group["allocatable"]["nvidia.com/gpu"] = "1"
    loaded = load(
        {"name": "t", "arrivals": {"trace": {"file": "jobs.csv"}, "start": "10s"}},
        groups=[group],
        directory=tmp_path,
    )
    pods = simulate(loaded).figures.pods
    assert [(pod.arrived, pod.scheduled, pod.ended) for pod in pods] == [
        (40, 40, None),
        (70, 70, 670),
        (70, 70, 670),
    ]
    result = make_result(simulate(loaded))
    assert result.utilisation["nvidia.com/gpu"].max == 0.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("runtime\n5\n", "t.csv:1: arrival: the column is missing", id="no arrival"),
        pytest.param("arrival,gpu\n5,1\n", "t.csv:1: gpu: unknown column", id="unknown column"),
        pytest.param("arrival\nsoon\n", "t.csv:2: arrival: 'soon' is not a number", id="no number"),
        pytest.param("arrival\n-1\n", "t.csv:2: arrival: -1 is not between 0", id="a negative time"),
        pytest.param("arrival,cpu\n1,2x\n", "t.csv:2: cpu: ", id="no quantity"),
        pytest.param("arrival,cpu\n1\n", "t.csv:2: has 1 columns, the header has 2", id="a short row"),
        pytest.param("arrival\n1,2\n", "t.csv:2: has 2 columns, the header has 1", id="a long row"),
        pytest.param("arrival\n", "t.csv: it has no rows", id="empty"),
    ],
)
def test_errors_in_traces_name_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(InputError) as raised:
        read_trace(path, "csv")
    assert problem in str(raised.value)


OPENB_COLUMNS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
OPENB = """\
a,12000,16384,1,1000,,LS,Running,100,700,110
b,6000,12288,1,460,V100M16|V100M32,LS,Running,50,650,
c,2000,1024,0,0,,BE,Succeeded,100,130,100
"""


NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,32000,65536,1,V100M16\nnode-b,32000,65536,2,T4\n"


def test_openb_pod_lists(tmp_path: Path) -> None:
    rows = read_trace(write(tmp_path / "openb.csv", OPENB_COLUMNS + OPENB), "openb")
    assert [(row.arrival, row.run_seconds, dict(row.requests), dict(row.annotations)) for row in rows] == [
        (
            0,
            600,
            {"cpu": "6000m", "memory": "12288Mi"},
            {GPU_COUNT: "1", GPU_MILLI: "460", GPU_MODEL: "V100M16|V100M32"},
        ),
        (50, 590, {"cpu": "12000m", "memory": "16384Mi"}, {GPU_COUNT: "1", GPU_MILLI: "1000"}),
        (50, 30, {"cpu": "2000m", "memory": "1024Mi"}, {}),
    ]
    with pytest.raises(InputError, match=r"other\.csv:1: name: the column is missing"):
        read_trace(write(tmp_path / "other.csv", "arrival\n1\n"), "openb")


def test_pods_of_the_openb_trace_share_gpus(tmp_path: Path) -> None:
    """On its own nodes; the model is respected, and used GPUs are counted in parts."""
    write(tmp_path / "pods.csv", OPENB_COLUMNS + OPENB)
    write(tmp_path / "nodes.csv", NODES)
    finished = simulate(
        load(
            {"name": "t", "arrivals": {"trace": {"file": "pods.csv", "format": "openb"}}},
            groups=[],
            cluster={"openb": "nodes.csv"},
            directory=tmp_path,
            sampleInterval="10s",
        )
    )
    assert [pod.node_name for pod in finished.figures.pods[:2]] == ["node-a", "node-b"]
    result = make_result(finished)
    assert result.utilisation[GPU_COUNT].max == pytest.approx(1.46 / 3)
    assert GPU_COUNT not in result.fragmentation
    assert any("GpuSharing was added" in note for note in result.notes)
