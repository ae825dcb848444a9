"""Runs a test function with an administrator and the client under test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from bayplan.client.http import KubernetesCluster
from conformance.harness.admin import Admin
from conformance.harness.control_plane import KUBE_SCHEDULER, ControlPlane

T = TypeVar("T")

PATIENCE_SECONDS: Final = 120.0
"""Long enough for a busy machine; a function that takes longer hangs."""


def with_client(
    plane: ControlPlane,
    act: Callable[[Admin, KubernetesCluster], Awaitable[T]],
    *,
    user: str = KUBE_SCHEDULER,
    **options: Any,
) -> T:
    """The result of the function. `options` are those of the client under test."""

    async def main() -> T:
        async with (
            Admin(plane.access()) as admin,
            KubernetesCluster(
                plane.access(user), **{"qps": -1, "rng": random.Random(0), **options}
            ) as cluster,
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            return await act(admin, cluster)

    return asyncio.run(main())


async def until(true: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Polls until a condition is true."""
    try:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {seconds:.0f} s") from None
