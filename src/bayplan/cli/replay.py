"""`bayplan replay`: replays recorded runs of kube-scheduler and prints the outcome of each pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from bayplan.answers.sources.files import VERSION
from bayplan.api.documents import read_lines
from bayplan.api.releases import Release
from bayplan.api.yaml_reader import decode_json
from bayplan.cli.errors import ExitStatus
from bayplan.cli.options import release_option
from bayplan.cli.terminal import echo, echo_json
from bayplan.errors import BayplanError, DecodeError, InputError
from bayplan.simulate.group_runs import first_group_difference, is_group_run
from bayplan.simulate.replay import RECORDED, check_run, release_of, replay


@click.command("replay")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--check", is_flag=True, help="Compare with the recorded outcomes; exit status 1 on a difference."
)
@click.option("--events", is_flag=True, help="Of runs with pod groups: print, or compare, the events, too.")
@release_option
@click.option("--no-cache", is_flag=True, help="Reuse no results: compute everything again for each pod.")
def replay_runs(
    files: tuple[str, ...], check: bool, events: bool, release: Release | None, no_cache: bool
) -> int:
    """Replay recorded runs (.jsonl or .jsonl.gz, one run per line) on a cluster in this process.

    Prints one JSON line per run. Runs with extenders take real time, all others virtual time.
    """
    differing = runs = 0
    versions: set[str] = set()
    for file in files:
        for line, run in _read(file):
            try:
                used = release or release_of(run)
                played = replay(run, cache=not no_cache, release=used)
            except InputError as error:
                raise error.at(source=file, line=line) from error.__cause__
            except BayplanError as error:
                raise InputError(f"the run cannot be replayed: {error}", source=file, line=line) from error
            runs += 1
            versions.add(used.version)
            if not check:
                if not events:
                    played["results"] = [_without_events(result) for result in played["results"]]
                echo_json(msgspec.json.encode({**played, VERSION: used.version}))
                continue
            difference = first_difference(run, played, events=events)
            differing += difference is not None
            echo(f"{run['name']}: {difference or 'the same'}")
    if check:
        if versions:
            echo(f"replayed as Kubernetes {' and '.join(sorted(versions))}")
        echo(f"{runs - differing} passed, {differing} failed")
        return ExitStatus.NO if differing else ExitStatus.OK
    return ExitStatus.OK


def _read(file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each run with its line number."""
    lines = read_lines(Path(file))
    while True:
        try:
            number, line = next(lines, (0, b""))
        except OSError as error:
            raise InputError((error.strerror or "cannot be read").lower(), source=file) from None
        if not line:
            return
        try:
            run = check_run(decode_json(line))
        except DecodeError as error:
            raise error.at(source=file, line=number) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"this is not JSON: {error}", source=file, line=number) from None
        yield number, run


def _without_events(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "events"}


def first_difference(
    run: Mapping[str, Any], played: Mapping[str, Any], *, events: bool = False
) -> str | None:
    """The first pod, or settle step, whose outcome differs from the recorded one."""
    if is_group_run(run):
        return first_group_difference(run, played["results"], events=events)
    recorded = [step for step in run["steps"] if step["op"] == "schedule"]
    for number, (want, have) in enumerate(zip(recorded, played["results"], strict=True)):
        # Calls of extenders are comparable only for pods that were bound at the first attempt.
        skipped = {"filtered"} if want.get("nominated") or not want.get("node") else set()
        for name in RECORDED:
            expected, found = want.get(name), have.get(name)
            if name == "victims":
                expected, found = sorted(expected or ()), sorted(found or ())
            if name not in skipped and expected != found:
                return f"pod {number} {have['pod']}: {name} is {found!r}, recorded is {expected!r}"
    return None
