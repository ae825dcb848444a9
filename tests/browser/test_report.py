"""The report of `bayplan simulate run` in a real browser: complete, quiet, and readable at every width."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bayplan.simulate.scenarios.reading import read_scenario
from bayplan.simulate.scenarios.report import make_page
from bayplan.simulate.scenarios.result import ReasonResult, Result, make_result
from bayplan.simulate.scenarios.run import simulate

from .chromium import Page, find_browser, opened

ROOT = Path(__file__).parents[2]
BROWSER = find_browser()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium on this machine; install the package chromium"
)

CHARTS = ["utilisation", "queues", "running", "wait-p50", "wait-p90", "wait-p99", "fragmentation", "reasons"]
PHONE, DESKTOP = 390, 1280

VISIBLE_CHARTS = """
Array.from(document.querySelectorAll('svg.chart')).filter(svg => svg.getClientRects().length).map(svg => {
  const box = svg.getBoundingClientRect();
  const texts = Array.from(svg.querySelectorAll('text'));
  return {
    key: svg.querySelector('title').id.replace(/-(wide|narrow)-t$/, ''),
    title: svg.querySelector('title').textContent,
    described: svg.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id)),
    width: box.width, height: box.height, left: box.left, right: box.right,
    drawn: Array.from(svg.querySelectorAll('polyline, rect')).filter(one => {
      const own = one.getBoundingClientRect();
      return own.width > 0 && getComputedStyle(one).stroke + getComputedStyle(one).fill !== 'nonenone';
    }).length,
    smallest: Math.min(...texts.map(text => text.getBoundingClientRect().height)),
    table: svg.closest('section').querySelectorAll('table tbody tr').length,
  };
})
"""
CONTRAST = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  return ['body', '.muted', 'summary', 'dt', 'svg.chart text'].map(selector => {
    const style = getComputedStyle(document.querySelector(selector));
    const text = light(selector.includes('svg') ? style.fill : style.color);
    return (Math.max(page, text) + 0.05) / (Math.min(page, text) + 0.05);
  });
})()
"""


@pytest.fixture(scope="module")
def result() -> Result:
    return make_result(simulate(read_scenario(ROOT / "examples" / "scenario.yaml"), until=5 * 3600))


def browse(tmp_path: Path, page: str, visit: Callable[[Page, Path], Awaitable[None]]) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")

    async def main() -> None:
        assert BROWSER is not None
        async with opened(BROWSER, tmp_path) as tab:
            await visit(tab, file)

    asyncio.run(main())


def test_the_report_is_complete_and_quiet(result: Result, tmp_path: Path) -> None:
    """At phone and desktop width: every chart once, nothing beside the page, no error, no other request."""

    async def visit(tab: Page, file: Path) -> None:
        for width in (PHONE, DESKTOP):
            await tab.open(file, width=width)
            assert await tab.evaluate("window.innerWidth") == width
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width
            assert await tab.evaluate("document.title") == "Simulation of working-day"
            charts: list[dict[str, Any]] = await tab.evaluate(VISIBLE_CHARTS)
            assert [chart["key"] for chart in charts] == CHARTS
            for chart in charts:
                assert chart["title"], chart
                assert chart["described"], chart
                assert chart["width"] > 0.8 * min(width, 950), chart
                assert chart["height"] > 40, chart
                assert chart["drawn"] > 0 or chart["key"] == "wait-p50", chart
                assert chart["smallest"] >= 11, chart
                assert chart["table"] > 0, chart
            await tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.requests == [file.as_uri()] * 2
        assert tab.console_errors == []

    browse(tmp_path, make_page(result), visit)


def test_light_and_dark(result: Result, tmp_path: Path) -> None:
    """Text has enough contrast in both (WCAG AA)."""

    async def visit(tab: Page, file: Path) -> None:
        backgrounds = set()
        for dark in (False, True):
            await tab.open(file, width=DESKTOP, dark=dark)
            backgrounds.add(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert min(await tab.evaluate(CONTRAST)) >= 4.5
        assert len(backgrounds) == 2

    browse(tmp_path, make_page(result), visit)


EVIL = (
    "</style></title><script>document.title = 'run'</script>"
    "<img src=http://127.0.0.1:9/x onerror=alert(1)>\"'&amp;"
)


def test_texts_of_the_scenario_are_only_texts(result: Result, tmp_path: Path) -> None:
    workload = replace(result.workloads[0], name=EVIL)
    evil = replace(
        result,
        scenario=EVIL,
        notes=[EVIL],
        workloads=[workload],
        reasons=[ReasonResult(plugin=EVIL, reason=EVIL, pod_seconds=7.0, attempts=1)],
        utilisation={EVIL: result.utilisation["cpu"]},
        series=replace(result.series, utilisation={EVIL: result.series.utilisation["cpu"]}),
    )

    async def visit(tab: Page, file: Path) -> None:
        await tab.open(file, width=DESKTOP)
        assert await tab.evaluate("document.title") == f"Simulation of {EVIL}"
        assert await tab.evaluate("document.querySelector('#notes li').textContent") == EVIL
        assert await tab.evaluate("document.images.length + document.scripts.length") == 0
        assert tab.requests == [file.as_uri()]
        assert tab.console_errors == []

    browse(tmp_path, make_page(evil), visit)


def test_requests_and_errors_would_be_detected(result: Result, tmp_path: Path) -> None:
    """The policy blocks what a page should not contain, and these tests see that it tried."""
    page = make_page(result).replace("</main>", "<script>1</script><img src='http://127.0.0.1:9/x'></main>")

    async def visit(tab: Page, file: Path) -> None:
        await tab.open(file, width=DESKTOP)
        assert len(tab.console_errors) >= 2
        assert all("Content Security Policy" in error for error in tab.console_errors)

    browse(tmp_path, page, visit)
    open_page = make_page(result).replace("Content-Security-Policy", "Nothing")
    open_page = open_page.replace("</main>", "<img src='http://127.0.0.1:9/x'></main>")

    async def visit_open(tab: Page, file: Path) -> None:
        await tab.open(file, width=DESKTOP)
        assert tab.requests == [file.as_uri(), "http://127.0.0.1:9/x"]

    browse(tmp_path, open_page, visit_open)
