"""`fields*.txt` have the fields of the pinned Kubernetes for all kinds of the embedded server."""

from __future__ import annotations

import pytest

from conformance.fields import FILES, fields_text


@pytest.mark.parametrize("release", FILES)
def test_the_fields_of_all_kinds_are_up_to_date(release: str) -> None:
    """`python -m conformance.fields` writes them."""
    written = FILES[release].read_text(encoding="utf-8")
    assert "".join(
        line for line in written.splitlines(keepends=True) if line[0] != "#"
    ).lstrip() == fields_text(release)
