"""The page in a real browser: each view, live changes, keyboard, phones, hostile names, lost connections."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.embedded.server.kinds import JOBS, NODES, PODS
from bayplan.embedded.up.cluster import LocalCluster
from bayplan.net.listening import Limits, Listener
from bayplan.net.ports import bind
from bayplan.process.history import Change
from bayplan.testing import make_node, make_pod
from bayplan.ui.access import Access
from bayplan.ui.hub import FLUSH_SECONDS
from bayplan.ui.questions import Subject
from bayplan.ui.server import Page as ServedPage
from bayplan.ui.server import link
from bayplan.ui.sources import from_loaded, from_scenario

from .chromium import Page, find_browser, opened
from .pages import ROOT, TOUR, Served, files, large, served, tour

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium on this machine; install the package chromium"
)

PHONE, DESKTOP, WIDE = 360, 1440, 2560
READY = "performance.getEntriesByName('shown').length > 0"
FITS = "document.documentElement.scrollWidth <= innerWidth"
VIEWS = ("cluster", "queue", "decisions", "whatif", "compare", "time")


def text(selector: str) -> str:
    return f"(document.querySelector({selector!r})?.innerText ?? '')"


async def go(tab: Page, address: str) -> None:
    await tab.evaluate(f"location.hash = {address!r}")
    await asyncio.sleep(0.05)
    await tab.until("!document.querySelector('.spin')")


async def job_ended(cluster: LocalCluster, namespace: str, name: str) -> None:
    async with asyncio.timeout(20):
        while "completionTime" not in cluster.server.api.get(JOBS, name, namespace)["status"]:
            await asyncio.sleep(0.05)


def browse(work: Callable[[Page], Awaitable[None]]) -> None:
    async def main() -> None:
        assert BROWSER is not None
        with tempfile.TemporaryDirectory() as profile:
            async with opened(BROWSER, Path(profile)) as tab:
                await work(tab)

    asyncio.run(main())


async def log_in(tab: Page, page: Served, width: int = DESKTOP, *, dark: bool = False) -> None:
    await tab.open(page.link(), width=width, dark=dark)
    await tab.until(READY)


def manifest(name: str, cpu: str = "100m", **annotations: str) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"containers": [container]},
    }


def test_the_tour() -> None:
    """Every view of the tour's cluster, a live decision, a drained node, time, back and forward."""

    async def work(tab: Page) -> None:
        async with tour() as page:
            assert page.cluster is not None
            await log_in(tab, page)
            assert await tab.evaluate("document.querySelectorAll('.card').length") == 12
            # A node is selected by a click; its pods and what it rejects are at the side.
            await tab.evaluate("document.querySelector('[data-node=n06]').click()")
            await tab.until(f"{text('#side')}.includes('does not fit here')")
            assert "node=n06" in await tab.evaluate("location.hash")
            for view in VIEWS:
                await go(tab, f"#/{view}")
                assert await tab.evaluate(FITS), view
            await go(tab, "#/queue")
            await tab.until(f"{text('#main')}.includes('ml/huge')")
            assert "Insufficient cpu" in await tab.evaluate(text("#main"))
            assert "NodeResourcesFit: " in await tab.evaluate(text("#main"))
            # A decision appears while the page is open, and opens to its funnel and scores.
            await go(tab, "#/decisions")
            await tab.until("document.querySelectorAll('tbody tr').length > 5")
            page.cluster.server.api.create(PODS, manifest("fresh"), "default")
            await tab.until(f"{text('tbody tr.arrived')}.includes('default/fresh')")
            await tab.evaluate("document.querySelector('tbody tr.arrived a').click()")
            await tab.until(f"{text('h1')}.includes('default/fresh')")
            found = await tab.evaluate(text("#main"))
            assert "all nodes" in found
            assert "weighted by plugin" in found
            preempting = next(one for one in page.hub.history.attempts() if one.victims)
            await go(tab, f"#/decisions/{preempting.seq}")
            await tab.until(f"{text('#main')}.includes('Evicts 1 pod')")
            assert preempting.victims[0] in await tab.evaluate(text("table[aria-label=Candidates]"))
            # Back and forward.
            await tab.evaluate("history.back()")
            await tab.until(f"{text('h1')}.includes('default/fresh')")
            await tab.evaluate("history.forward()")
            await tab.until(f"{text('#main')}.includes('Evicts 1 pod')")
            # Pod and node.
            await go(tab, "#/pod/ml/huge")
            await tab.until(f"{text('#main')}.includes('Fits on no node')")
            await go(tab, "#/node/n06")
            await tab.until(f"{text('h1')} === 'n06'")
            # What if a node is drained, by a click; nothing changes in the cluster.
            await go(tab, "#/whatif")
            await job_ended(page.cluster, "ml", "finetune")  # by itself, after 5 s
            await page.cluster.idle()
            await asyncio.sleep(2 * FLUSH_SECONDS)
            before = page.hub.history.last
            await tab.until("document.querySelector('.card') !== null")
            await tab.evaluate("document.querySelector('[data-node=n06]').click()")
            await tab.until(f"{text('#side')}.includes('moved')")
            assert await tab.evaluate("location.hash") == "#/whatif?do=drain%3An06"
            assert "then 0 %" in await tab.evaluate(text(".card.mark[data-node=n06]"))
            assert [one for one in page.hub.history.entries(before) if isinstance(one, Change)] == []
            await tab.evaluate("history.back()")
            await tab.until(f"{text('#side')}.includes('Click a node')")
            await go(tab, "#/compare")
            await tab.evaluate("document.querySelector('button.main').click()")
            await tab.until(f"{text('#main')}.includes('pods would go')")
            # Time: a step back shows an earlier state, and Live the current one.
            await go(tab, "#/cluster")
            await tab.evaluate("document.querySelector('[aria-label=\"Previous decision\"]').click()")
            await tab.until("location.hash.includes('at=')")
            await tab.until(f"{text('#status')}.includes('as of')")
            await tab.evaluate("document.querySelector('.live').click()")
            await tab.until("!location.hash.includes('at=')")
            # Logging out.
            errors = list(tab.console_errors)
            await tab.evaluate("document.getElementById('logout').click()")
            await tab.until(f"{text('h1')}.includes('Open the link')")
        root = tab.requests[0].partition("/ui/")[0]
        assert {one.partition("/ui/")[0] for one in tab.requests} == {root}
        assert errors == []

    browse(work)


def chosen(label: str, value: str) -> str:
    """Chooses a value of the list with this label."""
    return (
        f"(s => {{ s.value = {value!r}; s.dispatchEvent(new Event('change')); }})("
        f"[...document.querySelectorAll('label.field')].find(l => l.firstChild.textContent === {label!r})"
        ".querySelector('select'))"
    )


def test_the_address_has_the_state() -> None:
    """Every choice is in it: loaded again, it shows the same, and back and forward go through the choices."""

    async def again(tab: Page) -> None:
        await tab.evaluate("performance.clearMarks(), location.reload()")
        await tab.until(READY)

    async def work(tab: Page) -> None:
        async with tour([TOUR[0], TOUR[1]]) as page:
            await log_in(tab, page)
            await tab.evaluate(chosen("Group", ""))
            await tab.evaluate(chosen("Colour", "memory"))
            await tab.evaluate("document.querySelector('[data-node=n03]').click()")
            await tab.until("location.hash === '#/cluster?group=none&colour=memory&node=n03'")
            await tab.evaluate("history.back(), history.back()")
            await tab.until("location.hash === '#/cluster?group=none'")
            await tab.until("!document.querySelector('.card[aria-pressed=true]')")
            await tab.evaluate("history.go(2)")
            await tab.until(f"{text('#side h1')} === 'n03'")
            assert "Gi of" in await tab.evaluate(text(".card"))
            await again(tab)
            await tab.until(f"{text('#side h1')} === 'n03'")
            # What if: nodes of a size, weights, a short manifest and one that is too long for an address.
            await go(tab, "#/whatif?form=addNodes")
            await tab.until("document.querySelector('form [placeholder=\"a usual node\"]') !== null")
            await tab.evaluate(
                "document.querySelector('form [placeholder=\"a usual node\"]').value = 'cpu=8,memory=32Gi'"
            )
            await tab.evaluate("document.querySelector('form button.main').click()")
            await tab.until(f"{text('.pill')} === 'add 3 nodes like cpu=8,memory=32Gi'")
            await tab.until(f"{text('#main')}.includes('New nodes')")
            await tab.evaluate(
                "[...document.querySelectorAll('button')].find(b => b.innerText === 'Weights').click()"
            )
            await tab.until("document.getElementById('w-NodeResourcesFit') !== null")
            await tab.evaluate(
                "(i => { i.value = 7;"
                " for (const name of ['input', 'change']) i.dispatchEvent(new Event(name)); })"
                "(document.getElementById('w-NodeResourcesFit'))"
            )
            await tab.until(f"{text('.bar')}.includes('NodeResourcesFit × 7')")
            assert "form=weights" in await tab.evaluate("location.hash")
            for padding in (10, 5000):
                await tab.evaluate(
                    "[...document.querySelectorAll('button')].find(b => b.innerText === 'Manifest').click()"
                )
                await tab.until("document.querySelector('form textarea') !== null")
                manifest_text = json.dumps(manifest(f"new-{padding}")) + "\n# " + "x" * padding
                await tab.evaluate(f"document.querySelector('form textarea').value = {manifest_text!r}")
                await tab.evaluate("document.querySelector('form button.main').click()")
                await tab.until(f"{text('#side')}.includes('default/new-{padding}')")
            assert len(await tab.evaluate("location.hash")) < 2000
            await again(tab)
            await tab.until(f"{text('#side')}.includes('default/new-5000')")
            assert "default/new-10" in await tab.evaluate(text("#side"))
            assert await tab.evaluate("document.querySelectorAll('.pill').length") == 4
            await tab.evaluate("sessionStorage.clear()")
            await again(tab)
            await tab.until(f"{text('#side')}.includes('A text of this link is not here')")
            await tab.evaluate("document.querySelectorAll('.pill button')[3].click()")
            await tab.until(f"{text('#side')}.includes('default/new-10')")
            # Compare: the answer is part of the address, too.
            await go(tab, "#/compare?a=1.36")
            await tab.evaluate("document.querySelector('button.main').click()")
            await tab.until(f"{text('#main')}.includes('pods would go')")
            await again(tab)
            await tab.until(f"{text('#main')}.includes('pods would go')")
            # Time: leaving the present is one step, which back undoes.
            await go(tab, "#/cluster")
            for _ in range(2):
                before = await tab.evaluate("location.hash")
                await tab.evaluate("document.querySelector('[aria-label=\"Previous decision\"]').click()")
                await tab.until(f"location.hash !== {before!r}")
            await tab.until(f"{text('#status')}.includes('as of')")
            await tab.evaluate("history.back()")
            await tab.until(f"location.hash === '#/cluster' && !{text('#status')}.includes('as of')")
            await tab.evaluate("location.hash = '#/pod/%E0%A4%A'")  # not an address of the page
            await tab.until(f"{text('#main')}.includes('This cannot be shown')")
            assert [one for one in tab.console_errors if "404" not in one] == []

    browse(work)


def test_a_write_is_a_dry_run_and_a_question_first() -> None:
    async def work(tab: Page) -> None:
        async with tour([], nodes=2, writes=True) as page:
            assert page.cluster is not None
            await log_in(tab, page)
            await go(tab, "#/node/n01")
            await tab.evaluate("document.querySelector('[data-write=cordon]').click()")
            await tab.until(f"{text('dialog')}.includes('would accept it')")
            assert not page.cluster.server.api.get(NODES, "n01")["spec"].get("unschedulable")
            await tab.evaluate("document.querySelector('dialog button.main').click()")
            await tab.until(f"{text('#main')}.includes('cordoned')")
            assert page.cluster.server.api.get(NODES, "n01")["spec"]["unschedulable"]
            assert await tab.evaluate("document.querySelector('dialog') === null")
            await tab.until("document.querySelector('[data-write=uncordon]') !== null")
            assert tab.console_errors == []

    browse(work)


def test_groups_and_capacity_queues() -> None:
    groups, research = "table[aria-label='Pod groups']", "[data-queue='root.research']"

    async def work(tab: Page) -> None:
        async with files("groups.yaml") as page:
            await log_in(tab, page)
            await go(tab, "#/queue")
            await tab.until(f"{text(groups)}.includes('ml/batch')")
            await tab.evaluate(f"document.querySelector({groups + ' a'!r}).click()")
            await tab.until("location.hash.startsWith('#/group/ml/')")
            await tab.until(f"{text('#main')}.includes('gang of at least')")
            assert tab.console_errors == []
        async with files("queues/cluster.yaml", config="queues/scheduler.yaml") as page:
            await log_in(tab, page)
            await go(tab, "#/queue")
            await tab.until(f"{text(research)}.includes('5 of 6, 4 guaranteed')")
            await log_in(tab, page, PHONE)
            await go(tab, "#/queue")
            assert await tab.evaluate(FITS)

    browse(work)


def test_5000_nodes() -> None:
    async def work(tab: Page) -> None:
        async with large(5000, 20_000) as page:
            await log_in(tab, page)
            await tab.until("document.querySelector('canvas').height > 100")
            colours = ("cluster?colour=state", "cluster?colour=taint&group=pool", "cluster?colour=stranded")
            for view in (*colours, "queue", "decisions", "time"):
                await go(tab, f"#/{view}")
                assert await tab.evaluate(FITS), view
            await go(tab, "#/cluster?fit=ml%2Ftrain-4")
            await tab.until(f"{text('.legend')}.includes('NodeResourcesFit')", 40)
            await go(tab, "#/cluster")
            await tab.evaluate("document.querySelector('[aria-label=\"Larger cells\"]').click()")
            await tab.until("/size=[0-9]+/.test(location.hash)")
            # With the keyboard: to the map, to a node, open it, and close it again.
            await tab.until("document.querySelector('canvas')?.height > 100")
            await tab.evaluate("document.querySelector('canvas').focus()")
            for key, code in (("ArrowRight", 39), ("ArrowRight", 39), ("ArrowDown", 40)):
                await tab.press(key, code)
            assert "CPU" in await tab.evaluate("document.getElementById('note').textContent")
            await tab.press("Enter", 13, "\r")
            await tab.until("location.hash.includes('node=ip-10-')")
            await tab.until(f"{text('#side')}.includes('requested')", 40)
            await tab.press("Escape", 27)
            await tab.until("!location.hash.includes('node=')")
            # A click on a cell of what if drains that node.
            await go(tab, "#/whatif")
            await tab.until("document.querySelector('canvas')?.height > 100")
            box = await tab.evaluate(
                "(r => [r.x, r.y])(document.querySelector('canvas').getBoundingClientRect())"
            )
            for kind in ("mousePressed", "mouseReleased"):
                await tab.call(
                    "Input.dispatchMouseEvent",
                    type=kind,
                    x=box[0] + 30,
                    y=box[1] + 40,
                    button="left",
                    clickCount=1,
                )
            await tab.until(f"{text('#side')}.includes('moved')", 60)
            assert tab.console_errors == []

    browse(work)


def test_a_simulation_in_time() -> None:
    """The slider shows any moment, playing moves on, and the charts are drawn."""

    async def work(tab: Page) -> None:
        kinds = [kind.record for kind in read_kinds()]
        scenario = ROOT / "examples" / "scenario.yaml"
        subject, hub = await asyncio.to_thread(from_scenario, scenario, LoadedCluster("", ()), kinds)
        async with served(subject, hub) as page:
            await log_in(tab, page)
            await go(tab, "#/time")
            await tab.until("document.querySelectorAll('svg.chart').length === 4")
            slide = (
                "(r => { r.value = Number(r.min) + (r.max - r.min) * SHARE; "
                "r.dispatchEvent(new Event('input')); r.dispatchEvent(new Event('change')); })"
                "(document.querySelector('.strip input'))"
            )
            await tab.evaluate(slide.replace("SHARE", "0.25"))
            await tab.until("location.hash.includes('at=')")
            early = int(await tab.evaluate("location.hash.match(/at=([0-9]+)/)[1]"))
            assert 0 < early < hub.history.last / 2
            await tab.evaluate("document.querySelector('.play').click()")
            await tab.until(f"Number(location.hash.match(/at=([0-9]+)/)[1]) > {early}")
            await tab.evaluate("document.querySelector('.play').click()")
            await go(tab, f"#/cluster?at={early}")
            await tab.until(f"{text('#status')}.includes('as of')")
            expected = hub.overview_at(early).assigned
            shown = "[...document.querySelectorAll('.card .bay i')].length"
            await tab.until(f"{shown} === {expected}")
            assert tab.console_errors == []

    browse(work)


def test_phone_and_wide_windows() -> None:
    """Nothing is wider than the window, in every view, light and dark; text has contrast in both."""

    async def work(tab: Page) -> None:
        async with tour() as page:
            for width, dark in ((PHONE, False), (PHONE, True), (WIDE, False)):
                await log_in(tab, page, width, dark=dark)
                for view in (*VIEWS, "pod/ml/huge", "node/n05", "cluster?node=n05"):
                    await go(tab, f"#/{view}")
                    await asyncio.sleep(0.15)
                    assert await tab.evaluate(FITS), (view, width)
            assert tab.console_errors == []

    browse(work)


def test_only_with_the_keyboard() -> None:
    """Search, open, leave: every step by a key, and the focus is visible."""

    async def work(tab: Page) -> None:
        async with tour() as page:
            await log_in(tab, page)
            await tab.press("/", 191, "/")
            assert await tab.evaluate("document.activeElement.id") == "find"
            await tab.call("Input.insertText", text="huge")
            await tab.until("document.querySelectorAll('#found li').length === 1")
            await tab.press("Enter", 13, "\r")
            await tab.until("location.hash === '#/pod/ml/huge'")
            seen = set()
            for _ in range(40):
                await tab.press("Tab", 9)
                seen.add(await tab.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
            assert {"Cluster", "What if", "Show fit on the map"} <= seen
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert await tab.evaluate(outline) != "none"
            assert tab.console_errors == []

    browse(work)


EVIL = "<img src=x onerror=document.title='run'>"


def test_hostile_names_are_only_text() -> None:
    async def work(tab: Page) -> None:
        objects = (
            make_node("a", cpu="4", labels={"team": EVIL, "kubernetes.io/x": "y"}),
            make_node("b", cpu="4", labels={"team": "z"}, taints=[f"{EVIL}:NoSchedule"]),
            make_pod(f"web{EVIL}", cpu="1", node="a", annotations={"note": EVIL}),
            make_pod("pending\u202e", namespace="x", cpu="9", gates=()),
            make_pod("other", namespace="x", scheduler_name=EVIL),
        )
        subject, hub = from_loaded(LoadedCluster(f"dump {EVIL}", objects), time.time)
        async with served(subject, hub) as page:
            await log_in(tab, page)
            for view in (
                "cluster?group=team",
                "cluster?colour=taint",
                "queue",
                "node/a",
                "node/b",
                "whatif?do=drain%3Aa",
                "cluster?node=a",
            ):
                await go(tab, f"#/{view}")
                await asyncio.sleep(0.2)
                assert "bayplan" in await tab.evaluate("document.title"), view
            await tab.until(f"{text('#side')}.includes('<img src=x')")
            skipped = "1 pending pod not evaluated: schedulerName is "
            assert skipped in await tab.evaluate(text("#side"))
            assert await tab.evaluate("document.images.length") == 0
            assert "\u202e" not in await tab.evaluate("document.body.innerText")
            assert tab.console_errors == []

    browse(work)


def test_the_policy_blocks_inline_scripts() -> None:
    """These tests would notice one."""

    async def work(tab: Page) -> None:
        subject, hub = from_loaded(LoadedCluster("dump", (make_node("a"),)), time.time)
        async with served(subject, hub) as page:
            await log_in(tab, page)
            await tab.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"1\">')")
            await tab.until("true")
            await asyncio.sleep(0.2)
            assert any("Content Security Policy" in one for one in tab.console_errors)

    browse(work)


def test_a_server_that_goes_away_and_comes_back() -> None:
    async def work(tab: Page) -> None:
        async with tour(files=[], nodes=2) as source:
            limits, access = Limits(), Access()
            page = source.hub
            assert source.cluster is not None
            shown = ServedPage(Subject("bayplan", "cluster"), page, access)
            port = 0

            async def start() -> tuple[web.ServerRunner, Listener, int]:
                server = shown.server(limits)
                runner = web.ServerRunner(server, shutdown_timeout=0.1)
                await runner.setup()
                listener = Listener(server, limits, None)
                return runner, listener, listener.start(await bind("127.0.0.1", port))

            runner, listener, port = await start()
            access.listen(port)
            await tab.open(link("http", "127.0.0.1", port, access.token), width=DESKTOP)
            await tab.until(READY)
            await tab.until(f"{text('#status')}.includes('2 nodes')")
            await listener.close()
            await runner.cleanup()
            await tab.until(f"{text('#status')}.includes('no connection')")
            source.cluster.server.api.create(PODS, manifest("meanwhile"), "default")
            runner, listener, _ = await start()
            await tab.until(f"!{text('#status')}.includes('no connection')", 30)
            await go(tab, "#/decisions")
            await tab.until(f"{text('#main')}.includes('default/meanwhile')", 30)
            await listener.close()
            await runner.cleanup()

    browse(work)


AXE = find_spec("axe_core_python")


@pytest.mark.skipif(AXE is None, reason="the package axe-core-python is not installed")
def test_axe_has_no_serious_findings() -> None:
    async def work(tab: Page) -> None:
        assert AXE is not None
        assert AXE.submodule_search_locations
        script = (Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
        async with tour() as page:
            decision = next(iter(page.hub.history.attempts())).seq
            found = {}
            for dark in (False, True):
                await log_in(tab, page, dark=dark)
                await tab.evaluate(f"{script}; 0")
                for view in (
                    *VIEWS,
                    "cluster?node=n05",
                    "cluster?colour=state",
                    "pod/ml/huge",
                    "node/n05",
                    f"decisions/{decision}",
                    "whatif?do=drain%3An05",
                ):
                    await go(tab, f"#/{view}")
                    await asyncio.sleep(0.4)
                    problems = await tab.evaluate(
                        "axe.run().then(r => r.violations"
                        ".filter(v => ['serious', 'critical'].includes(v.impact))"
                        ".map(v => [v.id, v.nodes.length, v.nodes[0].html, v.nodes[0].failureSummary]))"
                    )
                    if problems:
                        found[view, dark] = problems
            assert found == {}

    browse(work)
