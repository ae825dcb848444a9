"""A PreBind plugin that takes its time."""

from __future__ import annotations

import asyncio
from typing import Any

from bayplan.api.pod import Pod
from bayplan.framework.plugin_api import Plugin
from bayplan.framework.status import SKIP, Status

from .running import plugin


class Works:
    """A slow PreBind plugin, and the times of its calls."""

    def __init__(
        self,
        seconds: float = 0.0,
        answer: Status | None = None,
        *,
        flight: Status | None = None,
        parallel: bool = False,
        built_in: bool = False,
        only: str = "",
    ) -> None:
        self.lines: list[tuple[float, str]] = []
        self._seconds = seconds
        self._answer = answer
        self._flight = flight
        self._parallel = parallel
        self._built_in = built_in
        self._only = only

    def named(self, name: str) -> type[Plugin]:
        async def pre_bind(state: Any, pod: Pod, node_name: str) -> Status | None:
            loop = asyncio.get_running_loop()
            self.lines.append((loop.time(), "begins"))
            try:
                await asyncio.sleep(self._seconds)
            except asyncio.CancelledError:
                self.lines.append((loop.time(), "is cancelled"))
                raise
            self.lines.append((loop.time(), "ends"))
            return self._answer

        return plugin(
            name,
            pre_binds_in_parallel=self._parallel,
            built_in=self._built_in,
            pre_bind_pre_flight=lambda state, pod, node: (
                SKIP if self._only and pod.name != self._only else self._flight
            ),
            pre_bind=pre_bind,
        )
