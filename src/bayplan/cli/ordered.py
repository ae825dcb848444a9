"""A command that knows the order of its options, across different options: changes are made in that order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

_ORDER: Final = "bayplan.option_order"


class OrderedCommand(click.Command):
    """Remembers in which order options were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


def in_order(ctx: click.Context, values: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """The values of repeated options, by option name, one after the other as they were given."""
    left = {name: iter(given) for name, given in values.items()}
    for name in ctx.meta[_ORDER]:
        if name in left:
            yield name, next(left[name])
