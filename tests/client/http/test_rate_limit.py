"""The rate of a client's requests, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from bayplan.client.requests import TokenBucket, make_bucket
from bayplan.errors import ConfigError
from bayplan.simulate.virtual_time import run_virtual


async def sent_at(bucket: TokenBucket, count: int) -> list[float]:
    """When each of so many requests that come at once is sent."""
    times: list[float] = []

    async def send() -> None:
        await bucket.wait()
        times.append(round(asyncio.get_running_loop().time(), 6))

    await asyncio.gather(*(send() for _ in range(count)))
    return times


@pytest.mark.parametrize(
    ("qps", "burst", "expected"),
    [
        pytest.param(10, 3, [0, 0, 0, 0.1, 0.2], id="a burst at once, then one by one"),
        pytest.param(2, 1, [0, 0.5, 1, 1.5, 2], id="without a burst at an even pace"),
        pytest.param(5000, 5000, [0, 0, 0, 0, 0], id="below the burst no request waits"),
    ],
)
def test_requests_that_come_at_once(qps: float, burst: int, expected: list[float]) -> None:
    assert run_virtual(sent_at(TokenBucket(qps, burst), 5)) == expected


def test_a_pause_fills_the_bucket_but_not_over_its_rim() -> None:
    async def main() -> list[float]:
        bucket = TokenBucket(10, 2)
        await sent_at(bucket, 4)
        await asyncio.sleep(100 - asyncio.get_running_loop().time())
        return await sent_at(bucket, 4)

    assert run_virtual(main()) == [100, 100, 100.1, 100.2]


def test_a_cancelled_waiter_makes_room() -> None:
    async def main() -> list[float]:
        bucket = TokenBucket(1, 1)
        await bucket.wait()
        waiting = asyncio.ensure_future(bucket.wait())
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await sent_at(bucket, 1)

    assert run_virtual(main()) == [1.0]


def test_a_crowd_that_waits_is_reported_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        run_virtual(sent_at(TokenBucket(2, 1), 100))
    assert caplog.messages == [
        "requests wait for 1.5 s due to client-side throttling (clientConnection.qps and burst), "
        "not priority and fairness"
    ]


@pytest.mark.parametrize(
    ("qps", "burst", "expected"),
    [
        pytest.param(-1, 0, None, id="negative: no limit"),
        pytest.param(50, 2, [0, 0, 0.02], id="as configured"),
        pytest.param(0, 2, [0, 0, 0.2], id="nothing set: client-go's five a second"),
    ],
)
def test_what_a_configuration_means(qps: float, burst: int, expected: list[float] | None) -> None:
    bucket = make_bucket(qps, burst)
    assert (None if bucket is None else run_virtual(sent_at(bucket, 3))) == expected


def test_a_rate_without_a_burst_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match="burst is required to be greater than 0 when RateLimiter is not set"
    ):
        make_bucket(10, 0)
