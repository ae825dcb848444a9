"""`bayplan simulate`: runs the real scheduler in virtual time and reports what it did.

Each subcommand has a module of its own and is added at the end of this one.
"""

from __future__ import annotations

import click


@click.group()
def simulate() -> None:
    """Simulate hours or days of a cluster in virtual time, with the real scheduler and plugins."""
