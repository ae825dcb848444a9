"""Options that several commands share."""

from __future__ import annotations

import click

plugin_option = click.option(
    "--plugin",
    "plugin_specs",
    multiple=True,
    metavar="SOURCE:CLASS",
    help="A plugin of your own: module:Class or path/to/file.py:Class. It runs at every extension point that "
    "it implements, after the built-in plugins, unless the configuration names it. Can be repeated.",
)
