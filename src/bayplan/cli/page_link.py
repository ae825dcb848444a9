"""Where the link that logs in to the page is shown: on a terminal, or in a file of the user.

The link is a credential. Where standard output goes to a log, only the address without the token is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bayplan.errors import InputError

link_file_option = click.option(
    "--link-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the link that logs in to this file, readable by its owner only. It is replaced after each "
    "login. Without a terminal, the link is not printed.",
)

allow_writes_option = click.option(
    "--allow-writes",
    is_flag=True,
    help="Viewers of the page may cordon and uncordon nodes and evict pods, each after a question.",
)


@dataclass(slots=True)
class PageLink:
    """The link of a page. `make` returns it; another one after each login."""

    make: Callable[[], str]
    file: Path | None = None
    _written: str = ""

    def shown(self) -> str:
        """The link if standard output is a terminal, otherwise the address and where the link is.

        Raises:
            InputError: the file cannot be written.
        """
        link = self.make()
        self._write(link)
        if sys.stdout.isatty():
            return link
        address = link.partition("login?")[0]
        where = f"the link to log in is in {self.file}" if self.file else "pass --link-file FILE to log in"
        return f"{address} ({where})"

    def _write(self, link: str) -> None:
        if self.file is None or link == self._written:
            return
        new = self.file.with_name(f".{self.file.name}.new")
        try:
            new.unlink(missing_ok=True)
            with open(new, "x", opener=_for_the_owner) as file:
                file.write(f"{link}\n")
            new.replace(self.file)
            self._written = link
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(self.file)) from None


def _for_the_owner(path: Any, flags: int) -> int:
    return os.open(path, flags, 0o600)
