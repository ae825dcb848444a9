"""`bayplan node down|up`: makes simulated nodes fail and recover.

A node of `bayplan up` is down while it has an annotation, so both commands send one patch per node.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import click

from bayplan.api.kinds import KINDS
from bayplan.cli.encoding import echo
from bayplan.cli.up import KUBECONFIG
from bayplan.client.access import Access
from bayplan.client.http import KubernetesCluster
from bayplan.client.kubeconfig import load_access
from bayplan.client.requests import MERGE_PATCH
from bayplan.embedded.kubelets.nodes import DOWN

_kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path(KUBECONFIG),
    show_default=True,
    help="The kubeconfig that `bayplan up` wrote.",
)
_context_option = click.option(
    "--context", default="", metavar="NAME", help="The context to use. Default: the file's current context."
)
_names: Final = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group()
def node() -> None:
    """Make simulated nodes fail and recover."""


@node.command()
@_names
@_kubeconfig_option
@_context_option
def down(names: tuple[str, ...], kubeconfig: Path, context: str) -> None:
    """Stop the heartbeats of nodes; their pods are evicted after tolerationSeconds."""
    asyncio.run(_annotate(load_access(str(kubeconfig), context=context), names, "true"))


@node.command()
@_names
@_kubeconfig_option
@_context_option
def up(names: tuple[str, ...], kubeconfig: Path, context: str) -> None:
    """Resume the heartbeats of nodes."""
    asyncio.run(_annotate(load_access(str(kubeconfig), context=context), names, None))


async def _annotate(access: Access, names: tuple[str, ...], value: str | None) -> None:
    body: dict[str, Any] = {"metadata": {"annotations": {DOWN: value}}}
    async with KubernetesCluster(access, component="bayplan") as cluster:
        for name in names:
            path = KINDS["Node"].item(name)
            await cluster.requests.send("PATCH", path, json.dumps(body).encode(), content_type=MERGE_PATCH)
            echo(f"node {name} is {'up' if value is None else 'down'}")
