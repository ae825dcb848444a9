"""Follows pods through src/bayplan: which functions of which files they visit, in which order.

    python tools/follow_a_pod.py [--path | --json]

A first pod, two identical ones and a preemptor are scheduled with the default profile on three nodes in
memory, under `sys.setprofile`. Counted are the Python calls into src/bayplan, comprehensions left out, from
the creation of a pod to the confirmation of its binding. A boundary is two calls in a row in different files.
`--path` prints the files in the order in which they are entered, with their functions.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType
from typing import NamedTuple

import bayplan
from bayplan.api.pod import Pod
from bayplan.scheduler.loop import Scheduler
from bayplan.simulate.memory.store import MemoryCluster, MemoryStore
from bayplan.testing.builders import make_node, make_pod

ROOT = os.path.dirname(bayplan.__file__) + os.sep
LEFT_OUT = ("comp>", "<genexpr>", "<lambda>")
TURNS = 80
"""Turns of the loop after which a pod is bound, and its binding confirmed."""


class Call(NamedTuple):
    file: str
    function: str
    line: int


@dataclass(frozen=True)
class Path:
    """The calls of one pod, in order."""

    title: str
    calls: list[Call]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(call.file for call in self.calls))

    def counts(self) -> dict[str, int]:
        return {
            "calls": len(self.calls),
            "functions": len(set(self.calls)),
            "files": len(self.files),
            "folders": len({file.split(os.sep)[0] for file in self.files}),
            "boundaries": sum(one.file != other.file for one, other in pairwise(self.calls)),
        }


class Recorder:
    """Collects calls while a pod is followed."""

    def __init__(self) -> None:
        self.calls: list[Call] | None = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if self.calls is None or event != "call" or not code.co_filename.startswith(ROOT):
            return
        if not code.co_qualname.endswith(LEFT_OUT):
            self.calls.append(Call(code.co_filename[len(ROOT) :], code.co_qualname, code.co_firstlineno))


async def follow_pods() -> list[Path]:
    """The paths of four pods."""
    store = MemoryStore()
    for name in "abc":
        store.create(make_node(name))
    running = asyncio.ensure_future(Scheduler(MemoryCluster(store)).run())
    recorder, paths = Recorder(), []

    async def schedule(pod: Pod) -> None:
        store.create(pod)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def follow(title: str, pod: Pod) -> None:
        calls: list[Call] = []
        recorder.calls = calls
        await schedule(pod)
        recorder.calls = None
        paths.append(Path(title, calls))

    for _ in range(TURNS):
        await asyncio.sleep(0)
    sys.setprofile(recorder)
    try:
        await follow("first pod of its kind", make_pod("one"))
        await follow("second, identical pod", make_pod("two"))
        await follow("third, identical pod", make_pod("three"))
        for number in range(3):
            await schedule(make_pod(f"fill{number}", cpu="3500m"))
        await follow("preemptor", make_pod("big", cpu="3900m", priority=1000))
    finally:
        sys.setprofile(None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return paths


def main() -> None:
    paths = asyncio.run(follow_pods())
    if "--json" in sys.argv:
        print(json.dumps({path.title: path.counts() for path in paths}))
        return
    for path in paths:
        print(f"{path.title}: {', '.join(f'{count} {name}' for name, count in path.counts().items())}")
        if "--path" in sys.argv:
            for file in path.files:
                print("   ", file, *dict.fromkeys(call.function for call in path.calls if call.file == file))


if __name__ == "__main__":
    main()
