"""A `--data-dir` that an older bayplan has written is opened by this one.

`older/` was written by the commit 0467ce6a with `bayplan up --nodes 2 --data-dir …`: a Deployment with two
running pods, and a pod that fits nowhere. Keys and tokens are not in it; they are made again.
"""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

from bayplan.embedded.server.kinds import NODES, PODS
from bayplan.embedded.up.cluster import LocalCluster, LocalSettings
from bayplan.embedded.up.report import Outcomes

OLDER = Path(__file__).parent / "older"


def test_objects_are_as_they_were_and_are_scheduled(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    (directory / "bayplan.committed").write_bytes((OLDER / "bayplan.committed").read_bytes())
    database = gzip.decompress((OLDER / "bayplan.sqlite3.gz").read_bytes())
    (directory / "bayplan.sqlite3").write_bytes(database)

    async def main() -> tuple[dict[str, str], dict[str, str], set[str]]:
        async with LocalCluster(LocalSettings(nodes=2, data_dir=directory), Outcomes()) as cluster:
            await cluster.idle()
            pods = cluster.server.api.list(PODS, "team")
            nodes = {node["metadata"]["name"] for node in cluster.server.api.list(NODES)}
            by_name = {pod["metadata"]["name"]: pod for pod in pods}
            phases = {name: pod["status"]["phase"] for name, pod in by_name.items()}
            return phases, {name: pod["spec"].get("nodeName", "") for name, pod in by_name.items()}, nodes

    phases, placed, nodes = asyncio.run(main())
    web = {name for name in phases if name.startswith("web-")}
    assert nodes == {"n01", "n02"}
    assert {name: phases[name] for name in web} == dict.fromkeys(
        ("web-79444d654c-2gpm4", "web-79444d654c-z5nbp"), "Running"
    )
    assert {placed[name] for name in web} == nodes
    assert (phases["big"], placed["big"]) == ("Pending", "")
