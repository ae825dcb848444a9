"""`fields.txt` has the fields of the pinned Kubernetes for all kinds of the embedded server."""

from __future__ import annotations

from conformance.fields import FILE, fields_text


def test_the_fields_of_all_kinds_are_up_to_date() -> None:
    """`python -m conformance.fields` writes them."""
    written = FILE.read_text(encoding="utf-8")
    assert (
        "".join(line for line in written.splitlines(keepends=True) if line[0] != "#").lstrip()
        == fields_text()
    )
