"""`python -m conformance.reference NAME FILE.jsonl.gz`: bayplan's results for recorded scenarios.

Each line is `{"id": …, "result": {…}}`, or an object with an id, in the format that the README beside the
recorded file describes.
Scenarios of queues have a name instead of an id.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

MODULES: Final = {
    "clusters": "conformance.reference.clusters",
    "descheduler": "conformance.reference.descheduler",
    "queues": "conformance.reference.queues",
}
"""By name: the module whose `evaluate(vector)` gives the result."""


def read_vectors(path: str) -> Iterator[dict[str, Any]]:
    """The scenarios of a file, one JSON object per line."""
    content = Path(path).read_bytes()
    for line in (gzip.decompress(content) if path.endswith(".gz") else content).splitlines():
        if line.strip():
            yield json.loads(line)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.reference", description=__doc__)
    parser.add_argument("name", choices=sorted(MODULES))
    parser.add_argument("file", nargs="+")
    options = parser.parse_args()
    evaluate = importlib.import_module(MODULES[options.name]).evaluate
    for path in options.file:
        for vector in read_vectors(path):
            label = {"id": vector["id"]} if "id" in vector else {"name": vector["scenario"]["name"]}
            found = evaluate(vector)
            print(json.dumps(found if "id" in found else {**label, "result": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
