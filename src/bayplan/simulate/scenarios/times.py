"""Durations, distributions of run times, and times of arrival.

Every workload has a random generator of its own, seeded with the simulation's seed and the workload's name:
a workload that is added or removed does not change the random numbers of the others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from bayplan.framework.args import Duration
from bayplan.simulate.scenarios.schema import Arrivals, Distribution, Rate

Draw = Callable[[random.Random], float]
"""Draws a number of seconds."""


def generator(seed: int, *names: str) -> random.Random:
    """The generator for what has this name. Strings seed the same generator in every process."""
    return random.Random("/".join((str(seed), *names)))


def seconds(text: str) -> float:
    """A duration in seconds; ValueError if it is not one, or negative."""
    duration = Duration.parse(text)
    if duration.nanoseconds < 0:
        raise ValueError(f"{text!r} is negative")
    return duration.seconds


def drawing(times: str | Distribution) -> Draw:
    """Draws from a distribution that `reading.py` has checked."""
    if isinstance(times, str):
        return _always(seconds(times))
    if times.fixed is not None:
        return _always(seconds(times.fixed))
    if times.exponential is not None:
        mean = seconds(times.exponential)
        return lambda rng: rng.expovariate(1 / mean) if mean else 0.0
    if times.uniform is not None:
        low, high = seconds(times.uniform.min), seconds(times.uniform.max)
        return lambda rng: rng.uniform(low, high)
    assert times.lognormal is not None, "exactly one field is set"
    mu, sigma = math.log(seconds(times.lognormal.median)), times.lognormal.sigma
    return lambda rng: rng.lognormvariate(mu, sigma)


def _always(amount: float) -> Draw:
    return lambda rng: amount


def interval(rate: Rate) -> float:
    """Seconds between two arrivals, or their mean."""
    if rate.every is not None:
        return seconds(rate.every)
    assert rate.per_hour is not None, "one of the two is set"
    return 3600 / rate.per_hour


def arrival_times(arrivals: Arrivals, rng: random.Random, until: float) -> Iterator[float]:
    """When the workload arrives, in order; without traces, which have times of their own.

    The first arrival at a constant rate is at `start`; the first of a Poisson process is random.
    """
    start = seconds(arrivals.start)
    end = until if arrivals.end is None else min(seconds(arrivals.end), until)
    times: Iterator[float]
    if arrivals.constant is not None:
        times = _constant(start, interval(arrivals.constant))
    elif arrivals.poisson is not None:
        times = _poisson(start, interval(arrivals.poisson), rng)
    elif arrivals.at is not None:
        times = iter(sorted(map(seconds, arrivals.at)))
    else:
        times = iter((start,))
    for number, time in enumerate(times):
        if time >= end or (arrivals.count is not None and number >= arrivals.count):
            return
        yield time


def _constant(start: float, every: float) -> Iterator[float]:
    number = 0
    while True:
        yield start + number * every
        number += 1


def _poisson(start: float, mean: float, rng: random.Random) -> Iterator[float]:
    time = start
    while True:
        time += rng.expovariate(1 / mean)
        yield time
