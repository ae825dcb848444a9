"""Measures the page: `python -m tests.browser.measure`; `--minutes 5` makes it shorter. See docs/ui.md.

First paint with 5,000 nodes and 50,000 pods; work for each frame while the map is scrolled, from a trace of
the browser; the page's memory while the cluster changes; what viewers cost the server.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bayplan.api.pod import Pod
from bayplan.process.history import Attempt, History, Result
from bayplan.ui.hub import Hub
from bayplan.ui.questions import Subject

from .chromium import Page, find_browser, opened
from .pages import Served, large, objects, served

PARTS = ["paint", "viewers", "memory"]
SIZES = ((5000, 50_000), (50_000, 100_000))
CHANGES_PER_SECOND = 400
VIEWS = ("cluster", "queue", "decisions", "time", "compare", "whatif", "cluster?colour=stranded")
SAME_FRAME_MICROS = 5_000

SCROLL = """
new Promise(done => {
  const box = document.querySelector('.mapbox');
  let left = 180, step = 23;
  const frame = () => {
    const end = box.scrollHeight - box.clientHeight - 1;
    if (box.scrollTop >= end || box.scrollTop === 0 && step < 0) step = -step;
    box.scrollTop += step;
    if (--left) requestAnimationFrame(frame); else done(box.scrollHeight);
  };
  requestAnimationFrame(frame);
})
"""


class Churn:
    """A feed of pods that come and go, each with a decision."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._objects = tuple(objects(nodes, pods))

    async def run(self, history: History, synced: asyncio.Event) -> None:
        if not history.objects:
            history.begin(self._objects)
        synced.set()
        names = [item.key for item in self._objects if type(item).__name__ == "Node"]
        number = 0
        model = next(item for item in self._objects if isinstance(item, Pod))
        while True:
            await asyncio.sleep(0.05)
            for _ in range(CHANGES_PER_SECOND // 20):
                number += 1
                key, node = f"churn-{number % 2000}", names[number * 7 % len(names)]
                meta = replace(model.metadata, name=key, uid=f"u{number}", resource_version=str(number))
                history.put(replace(model, metadata=meta, spec=replace(model.spec, node_name=node)))
                attempt = Attempt(
                    0, time.time(), f"team/{key}", f"u{number}", Result.SCHEDULED, node, "", 5000, 40
                )
                history.restore(attempt)


async def first_paint(tab: Page, page: Served) -> dict[str, float]:
    await tab.open(page.link(), width=1440)
    await tab.until("performance.getEntriesByName('shown').length > 0")
    times: dict[str, list[float]] = {"first contentful paint": [], "map with all nodes": []}
    for _ in range(5):
        await tab.open("about:blank", width=1440)
        await tab.open(page.root, width=1440)
        await tab.until("performance.getEntriesByName('map-paint').length > 0")
        times["first contentful paint"].append(
            await tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
        times["map with all nodes"].append(
            await tab.evaluate(
                "(m => m.startTime + m.duration)(performance.getEntriesByName('map-paint')[0])"
            )
        )
    return {name: statistics.median(values) for name, values in times.items()}


async def frames(tab: Page, page: Served) -> dict[str, float]:
    """Milliseconds of the renderer's main thread for each frame."""
    await tab.open(page.root, width=1440)
    await tab.until("performance.getEntriesByName('map-paint').length > 0")
    await tab.evaluate(
        "for (let i = 0; i < 6; i++) document.querySelector('[aria-label=\"Larger cells\"]').click()"
    )
    trace = await tab.traced(SCROLL)
    main = next(
        (one["pid"], one["tid"])
        for one in trace
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain" and _draws(trace, one)
    )
    own = [one for one in trace if (one["pid"], one["tid"]) == main]
    fired = sorted(one["ts"] for one in own if one["name"] == "FireAnimationFrame")
    # A frame runs several callbacks: the one that scrolls, and the one that paints the map.
    starts = [at for before, at in zip([0, *fired], fired, strict=False) if at - before > SAME_FRAME_MICROS]
    # Time of the thread, not of the clock: other processes of the machine do not count.
    tasks = [
        (one["ts"], one.get("tdur", one.get("dur", 0))) for one in own if one["name"].endswith("RunTask")
    ]
    work = []
    for begin, end in pairwise(starts):
        work.append(sum(length for at, length in tasks if begin - 500 <= at < end - 500) / 1000)
    return {
        "frames": len(starts),
        "median": statistics.median(work),
        "99 of 100 below": sorted(work)[int(len(work) * 0.99)],
    }


def _draws(trace: list[dict[str, Any]], thread: dict[str, Any]) -> bool:
    return any(
        one["name"] == "FireAnimationFrame" and (one["pid"], one["tid"]) == (thread["pid"], thread["tid"])
        for one in trace
    )


async def memory(tab: Page, page: Served, minutes: float) -> list[tuple[float, int]]:
    """Megabytes of the page's heap and of the server, ten times while the cluster changes and all views are
    opened in turn."""
    await tab.open(page.link(), width=1440)
    await tab.until("performance.getEntriesByName('shown').length > 0")
    found: list[tuple[float, int]] = []
    views = cycle(VIEWS)
    for _ in range(10):
        end = time.monotonic() + 6 * minutes
        while time.monotonic() < end:
            await tab.evaluate(f"location.hash = '#/{next(views)}'")
            await asyncio.sleep(min(2.0, 6 * minutes / len(VIEWS)))
        await tab.call("HeapProfiler.collectGarbage")
        heap = (await tab.call("Runtime.getHeapUsage"))["usedSize"]
        found.append((round(heap / 1e6, 1), round(_resident() / 1e6)))
    return found


def _resident() -> int:
    """Bytes of this process, which serves the page."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def read_streams(root: str, cookie: str, count: int, seconds: float) -> None:
    """Another process: that many viewers."""
    import aiohttp

    async def main() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def view() -> None:
                async with session.get(f"{root}api/v1/events", headers={"Cookie": cookie}) as response:
                    assert response.status == 200, await response.text()
                    async for part in response.content.iter_any():
                        received[0] += len(part)

            received = [0]
            tasks = [asyncio.ensure_future(view()) for _ in range(count)]
            await asyncio.sleep(seconds)
            print(f"  {received[0] / 1e6 / seconds / count:.2f} MB per second and viewer", flush=True)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


async def viewers(page: Served, count: int) -> float:
    """The share of a CPU that the server takes with this number of viewers."""
    import aiohttp

    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(page.link()) as response,
    ):
        cookie = response.headers["Set-Cookie"].partition(";")[0]
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=read_streams, args=(page.root, cookie, count, 12.0))
    process.start()
    await asyncio.sleep(5)
    used, since = time.process_time(), time.monotonic()
    await asyncio.sleep(6)
    share = (time.process_time() - used) / (time.monotonic() - since)
    await asyncio.to_thread(process.join)
    return share


async def main(parts: Sequence[str], minutes: float) -> None:
    browser = find_browser()
    assert browser is not None, "there is no Chromium"
    with tempfile.TemporaryDirectory() as profile:
        async with opened(browser, Path(profile)) as tab:
            for nodes, pods in SIZES:
                if "paint" in parts:
                    async with large(nodes, pods) as page:
                        print(f"{nodes:,} nodes, {pods:,} pods")
                        print("  first paint (ms):", await first_paint(tab, page))
                        print("  scrolling, work per frame (ms):", await frames(tab, page), flush=True)
            subject = Subject("churn", "cluster")
            hub = Hub(History(time.time), subject.release.accounting.assigned_requests, Churn(5000, 50_000))
            async with served(subject, hub) as page:
                print(f"5,000 nodes, {2 * CHANGES_PER_SECOND} entries per second")
                if "viewers" in parts:
                    for count in (1, 10, 100):
                        print(f"  {count} viewers: {await viewers(page, count):.0%} of a CPU", flush=True)
                if "memory" in parts:
                    print("  (heap of the page, server) in MB:", await memory(tab, page, minutes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="of the memory measurement")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.part, arguments.minutes))
