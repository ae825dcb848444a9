"""Files given to commands: `decide`, `explain`, `whatif`, `capacity`, `config` and `replay`. A command ends
with status 0, 1, 2 or 3."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import tempfile
from typing import Any, Final

import msgspec

from bayplan.cli.main import main
from tests.fuzz import samples
from tests.fuzz.mutation import Mutator
from tests.fuzz.oracle import FindingError

RUNS: Final = ("basic.jsonl.gz", "preemption.jsonl.gz", "mixed.jsonl.gz", "profiles.jsonl.gz")
VECTORS: Final = ("mixed.jsonl.gz", "volumes.jsonl.gz", "podaffinity.jsonl.gz", "dra.jsonl.gz")
STATUSES: Final = (0, 1, 2, 3)


class Command(msgspec.Struct, frozen=True):
    """Arguments and the files that they name, all in one directory."""

    arguments: list[str]
    files: dict[str, bytes]


class Commands:
    """The commands, in turns."""

    name = "commands"
    input_type = Command

    def make(self, rng: random.Random) -> Command:
        return rng.choice((_decide, _decide_scenarios, _answer, _config, _replay))(rng)

    def run(self, given: Command) -> None:
        with tempfile.TemporaryDirectory(prefix="bayplan-fuzz-") as directory:
            for name, data in given.files.items():
                with open(os.path.join(directory, name), "wb") as file:
                    file.write(data)
            arguments = [
                os.path.join(directory, part) if part in given.files else part for part in given.arguments
            ]
            with contextlib.redirect_stdout(_output()), contextlib.redirect_stderr(_output()):
                status = main(arguments)
        if status not in STATUSES:
            raise FindingError(f"{' '.join(given.arguments)} ended with status {status}")


def _output() -> io.TextIOWrapper:
    """A stream as a pipe would be: UTF-8, and strict about it."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def _decide(rng: random.Random) -> Command:
    mutator = Mutator(rng)
    objects = samples.cluster(rng)
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(objects))
        objects[place] = mutator.document(objects[place])
    data = mutator.encode(objects)
    name = rng.choice(("cluster.yaml", "cluster.json", "cluster.yaml.gz"))
    if name.endswith(".gz"):
        data = gzip.compress(data)
        data = mutator.damage(data) if rng.random() < 0.2 else data
    arguments, files = ["decide", name, "--output", rng.choice(("json", "table"))], {name: data}
    if rng.random() < 0.3:
        files["config.yaml"] = _configuration(rng)
        arguments += ["--config", "config.yaml"]
    return Command(arguments, files)


def _answer(rng: random.Random) -> Command:
    """A question about a cluster, mostly with a manifest."""
    mutator = Mutator(rng)
    more = [item for item in samples.other_objects() if rng.random() < 0.4]
    known = {(item["kind"], item["metadata"]["name"]): item for item in (*samples.cluster(rng), *more)}
    objects = list(known.values())
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = rng.randrange(len(objects))
        objects[place] = mutator.document(objects[place])
    added = rng.sample([*samples.other_objects(), *samples.cluster(rng)], 3)
    added = [mutator.document(item) if rng.random() < 0.25 else item for item in added]
    question = rng.choice(
        (
            ["whatif", "--add", "added.json"],
            ["whatif", "--add", "added.json", "--ignore-pending"],
            ["whatif", "--scale", "web=3", "--drain", "n0"],
            ["capacity", "added.json", "--at-most", "50"],
            ["explain", "node", "n1"],
            ["explain", "pod", rng.choice(("b0", "r0", "r1"))],
        )
    )
    files = {"cluster.json": _list(objects), "added.json": _list(added)}
    return Command([*question, "-f", "cluster.json", "--output", rng.choice(("json", "table"))], files)


def _list(items: list[Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def _decide_scenarios(rng: random.Random) -> Command:
    return _recorded(rng, "vectors", VECTORS, ["decide", "--output", rng.choice(("json", "table"))])


def _replay(rng: random.Random) -> Command:
    options = [option for option in ("--check", "--no-cache") if rng.random() < 0.3]
    return _recorded(rng, "runs", RUNS, ["replay", *options])


def _recorded(rng: random.Random, folder: str, files: tuple[str, ...], arguments: list[str]) -> Command:
    mutator = Mutator(rng)
    line = rng.choice(samples.recorded(folder, rng.choice(files)))
    changed = mutator.document(line, times=rng.choice((1, 2, 8)))
    data = msgspec.json.encode(changed) if _encodable(changed) else repr(changed).encode(errors="replace")
    return Command([*arguments, "a.jsonl"], {"a.jsonl": mutator.damage(data) if rng.random() < 0.1 else data})


def _encodable(document: object) -> bool:
    try:
        msgspec.json.encode(document)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return False
    return True


def _config(rng: random.Random) -> Command:
    arguments = rng.choice((["config", "check"], ["config", "show"], ["config", "show", "--json"]))
    return Command([*arguments, "config.yaml"], {"config.yaml": _configuration(rng)})


def _configuration(rng: random.Random) -> bytes:
    mutator = Mutator(rng)
    line = rng.choice(samples.recorded("configs", "configs.jsonl.gz"))
    if "result" in line:
        return mutator.encode([mutator.document(line["result"])])
    return mutator.damage(line["config"].encode())
