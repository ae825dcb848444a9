"""`bayplan simulate`: runs the real scheduler in virtual time and reports what it did.

Each subcommand has a module of its own and is added here.
"""

from __future__ import annotations

import click

from bayplan.cli.simulate_openb import openb
from bayplan.cli.simulate_run import run


@click.group()
def simulate() -> None:
    """Simulate hours or days of a cluster in virtual time, with the real scheduler and plugins."""


simulate.add_command(run)
simulate.add_command(openb)
