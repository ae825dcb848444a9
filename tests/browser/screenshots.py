"""Makes the pictures of docs/ui.md: `python -m tests.browser.screenshots`.

`--all DIRECTORY` makes more of them to look at: each view on the tour's cluster and on 5,000 nodes, groups,
capacity queues, a day and a rollout; on phones, desktops and wide screens, light and dark.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bayplan.answers.sources.live import read_kinds
from bayplan.answers.sources.loaded import LoadedCluster
from bayplan.ui.sources import from_scenario

from .chromium import Page, find_browser, opened
from .pages import ROOT, Served, files, large, served, tour

READY = "performance.getEntriesByName('shown').length"
QUIET = 0.7
"""Seconds until everything that a view asks for is there."""
PHONE, DESKTOP, WIDE = (360, 740), (1440, 900), (2560, 1440)

DRAINED = "#/whatif?do=drain:{node}"


async def picture(tab: Page, target: Path, *, script: str = "") -> None:
    await tab.until(READY)
    await asyncio.sleep(QUIET)
    if script:
        await tab.evaluate(script)
        await asyncio.sleep(QUIET)
    await tab.until("!document.querySelector('.spin')")
    target.write_bytes(await tab.screenshot())


@dataclass(frozen=True)
class Camera:
    """Makes pictures of a tab in a directory."""

    tab: Page
    directory: Path
    wanted: frozenset[str] | None = None
    """Names of files; None: all."""

    async def views(self, page: Served, name: str, address: str, *, script: str = "") -> None:
        """A view: on a desktop, light and dark, on a phone and on a wide screen."""
        await self._shoot(page, f"{name}.png", address, script, DESKTOP)
        await self._shoot(page, f"{name}-dark.png", address, script, DESKTOP, dark=True)
        await self._shoot(page, f"{name}-phone.png", address, script, PHONE)
        await self._shoot(page, f"{name}-phone-dark.png", address, script, PHONE, dark=True)
        await self._shoot(page, f"{name}-wide.png", address, script, WIDE)

    async def _shoot(
        self, page: Served, name: str, address: str, script: str, size: tuple[int, int], *, dark: bool = False
    ) -> None:
        if self.wanted is not None and name not in self.wanted:
            return
        await self.tab.open("about:blank", width=size[0], height=size[1], dark=dark)
        await self.tab.open(page.root + address, width=size[0], height=size[1], dark=dark)
        await picture(self.tab, self.directory / name, script=script)


async def log_in(tab: Page, page: Served) -> None:
    await tab.open(page.link(), width=1440)
    await tab.until(READY)


async def of_the_tour(camera: Camera) -> None:
    async with tour() as page:
        await log_in(camera.tab, page)
        attempts = list(page.hub.history.attempts())
        found = next(one for one in attempts if one.result == "scheduled" and one.feasible > 3)
        preempting = next(one for one in attempts if one.victims)
        for name, address in {
            "cluster": "#/cluster?node=n05",
            "queue": "#/queue",
            "decisions": "#/decisions",
            "decision": f"#/decisions/{found.seq}",
            "preemption": f"#/decisions/{preempting.seq}",
            "pod": "#/pod/ml/huge",
            "node": "#/node/n05",
            "whatif": "#/whatif?do=drain:n05",
            "compare": "#/compare?run=yes",
        }.items():
            await camera.views(page, f"tour-{name}", address)


async def of_5000_nodes(camera: Camera) -> None:
    async with large(5000, 50_000) as page:
        await log_in(camera.tab, page)
        node = page.hub.overview.names()[733]
        for name, address in {
            "cluster": f"#/cluster?node={node}",
            "fit": "#/cluster?fit=ml%2Ftrain-4",
            "stranded": "#/cluster?colour=stranded&group=pool",
            "whatif": DRAINED.format(node=node),
            "queue": "#/queue",
            "pod": "#/pod/ml/train-4",
        }.items():
            await camera.views(page, f"large-{name}", address)


async def of_groups_and_queues(camera: Camera) -> None:
    async with files("groups.yaml") as page:
        await log_in(camera.tab, page)
        await camera.views(page, "groups", "#/queue")
        await camera.views(page, "group", "#/group/ml/serve")
    async with files("composite.yaml") as page:
        await log_in(camera.tab, page)
        await camera.views(page, "composite-groups", "#/queue")
        await camera.views(page, "composite-group", "#/group/ml/draft")
    async with files("queues/cluster.yaml", config="queues/scheduler.yaml") as page:
        await log_in(camera.tab, page)
        await camera.views(page, "queues", "#/queue")


async def of_a_day(camera: Camera) -> None:
    kinds = [kind.record for kind in read_kinds()]
    scenario = ROOT / "examples" / "scenario.yaml"
    subject, hub = await asyncio.to_thread(from_scenario, scenario, LoadedCluster("", ()), kinds)
    async with served(subject, hub) as page:
        await log_in(camera.tab, page)
        await camera.views(page, "day-time", "#/time?at=1500")
        await camera.views(page, "day-cluster", "#/cluster?at=1500&group=hardware")


async def of_a_rollout(camera: Camera) -> None:
    parts = ROOT / "examples" / "rollout"
    async with tour([str(parts / "before.yaml"), str(parts / "after.yaml")], 6) as page:
        await log_in(camera.tab, page)
        latest = next(page.hub.history.attempts())  # some pods are of version 2 then
        await camera.views(page, "rollout", f"#/cluster?at={latest.seq}")


async def main(directory: Path, wanted: frozenset[str] | None) -> None:
    browser = find_browser()
    assert browser is not None, "there is no Chromium"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        async with opened(browser, Path(profile)) as tab:
            camera = Camera(tab, directory, wanted)
            for series in (of_the_tour, of_5000_nodes, of_groups_and_queues, of_a_day, of_a_rollout):
                await series(camera)
            for problem in tab.console_errors:
                print(problem)


def of_the_docs() -> frozenset[str]:
    """The pictures that the documentation shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return frozenset(name for text in texts for name in re.findall(r"images/ui/([\w-]+\.png)", text))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--all"]:
        asyncio.run(main(Path(sys.argv[2]), None))
    else:
        asyncio.run(main(ROOT / "docs" / "images" / "ui", of_the_docs()))
