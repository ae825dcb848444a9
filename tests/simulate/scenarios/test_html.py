"""The HTML report as text; `tests/browser` opens it."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from msgspec.structs import replace

from bayplan.simulate.scenarios.charts import count_label, number_ticks, time_label, time_ticks
from bayplan.simulate.scenarios.report import MAX_POINTS, make_page
from bayplan.simulate.scenarios.result import Result, make_result

from .building import nodes, run, template


@pytest.fixture(scope="module")
def result() -> Result:
    arrivals = {"constant": {"every": "5m"}}
    return make_result(
        run(
            {"name": "w", "arrivals": arrivals, "runTime": "20m", "template": template(cpu="3")},
            groups=[nodes(2)],
        )
    )


def test_the_page_needs_nothing_else(result: Result) -> None:
    """No script, no link, no address; the style sheet is the one that the policy permits."""
    page = make_page(result)
    assert not re.search(r"<(?:script|link|img|iframe|object)|https?:|url\(|@import|\sstyle=|\son\w+=", page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in page
    assert "default-src &#x27;none&#x27;" in page


def test_texts_are_escaped(result: Result) -> None:
    page = make_page(replace(result, scenario='<b a="1">&', notes=["<i>"]))
    assert "<title>Simulation of &lt;b a=&quot;1&quot;&gt;&amp;</title>" in page
    assert "<li>&lt;i&gt;</li>" in page


def test_ids_are_unique(result: Result) -> None:
    ids = re.findall(r'\sid="([^"]*)"', make_page(result))
    assert len(ids) == len(set(ids)) > 10


def test_long_series_are_thinned(result: Result) -> None:
    """The first and the last sample are always shown."""
    count = 5000
    series = replace(
        result.series,
        **{
            name: list(range(count))
            for name in result.series.__struct_fields__
            if isinstance(getattr(result.series, name), list)
        },
        utilisation={"cpu": [0.5] * count},
        fragmentation={"cpu": [0.5] * count},
    )
    page = make_page(replace(result, series=series))
    (points,) = re.findall(r'utilisation-wide-t">.*?points="([^"]*)"', page)
    assert len(points.split()) == MAX_POINTS
    assert page.count('<th scope="row">0s</th>') == 4
    assert page.count('<th scope="row">1h23m</th>') >= 4


def test_a_result_without_waiting(result: Result) -> None:
    page = make_page(make_result(run({"name": "w", "runTime": "1m"})))
    assert "Every pod was scheduled when it arrived." in page


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        pytest.param(0, [0, 1], id="nothing"),
        pytest.param(1, [0, 0.25, 0.5, 0.75, 1], id="shares"),
        pytest.param(7, [0, 2, 4, 6, 8], id="a few"),
        pytest.param(1234, [0, 500, 1000, 1500], id="many"),
    ],
)
def test_ticks_are_round_numbers(high: float, ticks: list[float]) -> None:
    assert number_ticks(high, 4) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("end", "count", "labels"),
    [
        pytest.param(86400, 8, ["0", "3h", "6h", "9h", "12h", "15h", "18h", "21h", "1d"], id="a day"),
        pytest.param(5400, 3, ["0", "30m", "1h", "1h30m"], id="ninety minutes"),
        pytest.param(0.5, 3, ["0"], id="half a second"),
        pytest.param(400 * 86400, 3, ["0", "140d", "280d"], id="more than a year"),
    ],
)
def test_times_are_easy_to_read(end: float, count: int, labels: list[str]) -> None:
    assert [time_label(tick) for tick in time_ticks(end, count)] == labels


def test_counts() -> None:
    assert [count_label(number) for number in (0, 0.5, 3, 1500)] == ["0", "0.5", "3", "1,500"]
