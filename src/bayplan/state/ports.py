"""The host ports that pods use on each node, as NodePorts reads them."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.api.pod import HostPort


class UsedPorts:
    """The ports in use, by row and by port."""

    def __init__(self) -> None:
        self.on_row: dict[int, set[HostPort]] = {}
        self.rows: dict[tuple[str, int], dict[int, int]] = {}
        """For each protocol and port the rows where a pod uses it, with the number of uses."""

    def use(self, ports: tuple[HostPort, ...], row: int) -> None:
        """A pod with these ports was added to a row."""
        used = self.on_row.setdefault(row, set())
        for port in ports:
            used.add(port)
            rows = self.rows.setdefault((port.protocol, port.port), {})
            rows[row] = rows.get(row, 0) + 1

    def free(self, ports: tuple[HostPort, ...], row: int) -> None:
        """A pod with these ports was removed from a row."""
        used = self.on_row.get(row, set())
        for port in ports:
            # Two pods with the same triple are removed together: upstream keeps a set, not a count.
            used.discard(port)
            rows = self.rows[port.protocol, port.port]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
        if not used:
            self.on_row.pop(row, None)

    def restorer(self, row: int) -> Callable[[], None]:
        """Restores the ports of a row as they are now: they are a set, so `use` does not revert `free`."""
        used = set(self.on_row.get(row, ()))

        def restore() -> None:
            if used:
                self.on_row[row] = used
            else:
                self.on_row.pop(row, None)

        return restore
