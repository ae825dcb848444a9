"""Makes the pictures of docs/ui.md: `python -m tests.browser.screenshots [DIRECTORY]`.

Each view on the tour's cluster and on 5,000 nodes; desktop and phone, light and dark.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
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


async def shoot(
    tab: Page,
    page: Served,
    target: Path,
    hash_: str,
    *,
    size: tuple[int, int] = DESKTOP,
    dark: bool = False,
    script: str = "",
) -> None:
    await tab.open("about:blank", width=size[0], height=size[1], dark=dark)
    await tab.open(page.root + hash_, width=size[0], height=size[1], dark=dark)
    await picture(tab, target, script=script)


async def log_in(tab: Page, page: Served) -> None:
    await tab.open(page.link(), width=1440)
    await tab.until(READY)


async def main(directory: Path, only: str = "") -> None:
    browser = find_browser()
    assert browser is not None, "there is no Chromium"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        async with opened(browser, Path(profile)) as tab:
            if not only or "tour" in only:
                async with tour() as page:
                    await log_in(tab, page)
                    attempts = list(page.hub.history.attempts())
                    found = next(one for one in attempts if one.result == "scheduled" and one.feasible > 3)
                    preempting = next(one for one in attempts if one.victims)
                    views = {
                        "cluster": "#/cluster?node=n05",
                        "queue": "#/queue",
                        "decisions": "#/decisions",
                        "decision": f"#/decisions/{found.seq}",
                        "preemption": f"#/decisions/{preempting.seq}",
                        "pod": "#/pod/ml/huge",
                        "node": "#/node/n05",
                        "whatif": "#/whatif?do=drain:n05",
                    }
                    for name, at in views.items():
                        await shoot(tab, page, directory / f"tour-{name}.png", at)
                        await shoot(tab, page, directory / f"tour-{name}-dark.png", at, dark=True)
                        await shoot(tab, page, directory / f"tour-{name}-phone.png", at, size=PHONE)
                    compare = "document.querySelector('button.main').click()"
                    await shoot(tab, page, directory / "tour-compare.png", "#/compare", script=compare)
                    await shoot(
                        tab,
                        page,
                        directory / "tour-compare-phone.png",
                        "#/compare",
                        size=PHONE,
                        script=compare,
                    )
            if not only or "large" in only:
                async with large(5000, 50_000) as page:
                    await log_in(tab, page)
                    node = page.hub.overview.names()[733]
                    for name, at in {
                        "cluster": f"#/cluster?node={node}",
                        "fit": "#/cluster?fit=ml%2Ftrain-4",
                        "stranded": "#/cluster?colour=stranded&group=pool",
                        "whatif": DRAINED.format(node=node),
                        "queue": "#/queue",
                        "pod": "#/pod/ml/train-4",
                    }.items():
                        await shoot(tab, page, directory / f"large-{name}.png", at)
                    await shoot(
                        tab, page, directory / "large-cluster-dark.png", f"#/cluster?node={node}", dark=True
                    )
                    await shoot(tab, page, directory / "large-cluster-phone.png", "#/cluster", size=PHONE)
                    await shoot(
                        tab, page, directory / "large-cluster-wide.png", f"#/cluster?node={node}", size=WIDE
                    )
            if not only or "shared" in only:
                async with files("groups.yaml") as page:
                    await log_in(tab, page)
                    for name, at in {"groups": "#/queue", "group": "#/group/ml/serve"}.items():
                        await shoot(tab, page, directory / f"{name}.png", at)
                        await shoot(tab, page, directory / f"{name}-dark.png", at, dark=True)
                        await shoot(tab, page, directory / f"{name}-phone.png", at, size=PHONE)
                async with files("queues/cluster.yaml", config="queues/scheduler.yaml") as page:
                    await log_in(tab, page)
                    await shoot(tab, page, directory / "queues.png", "#/queue")
                    await shoot(tab, page, directory / "queues-phone.png", "#/queue", size=PHONE)
            if not only or "time" in only:
                kinds = [kind.record for kind in read_kinds()]
                scenario = ROOT / "examples" / "scenario.yaml"
                subject, hub = await asyncio.to_thread(from_scenario, scenario, LoadedCluster("", ()), kinds)
                async with served(subject, hub) as page:
                    await log_in(tab, page)
                    for name, at in {
                        "time": "#/time?at=1500",
                        "cluster": "#/cluster?at=1500&group=hardware",
                    }.items():
                        await shoot(tab, page, directory / f"day-{name}.png", at)
                        await shoot(tab, page, directory / f"day-{name}-phone.png", at, size=PHONE)
                    await shoot(tab, page, directory / "day-time-dark.png", "#/time?at=1500", dark=True)
            for problem in tab.console_errors:
                print(problem)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/ui"), "".join(sys.argv[2:])))
