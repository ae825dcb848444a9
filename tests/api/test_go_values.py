"""Numbers and times as Go reads them; the messages are those of kube-apiserver v1.36."""

from __future__ import annotations

import pytest

from bayplan.api.go_values import GoValueError, canonical_time, parse_int, parse_uint

RFC3339 = '" as "2006-01-02T15:04:05Z07:00": cannot parse'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2025-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("2025-01-01T00:00:00+24:00", "2024-12-31T00:00:00Z"),
        ("2025-01-01T00:00:00+14:60", "2024-12-31T09:00:00Z"),
        ("2025-01-01T00:00:00-01:30", "2025-01-01T01:30:00Z"),
        ("2025-01-01T00:00:00.123456789123Z", "2025-01-01T00:00:00Z"),
        ("2025-01-01T0:00:00Z", "2025-01-01T00:00:00Z"),
        ("2025-01-01T00:00:00,5Z", "2025-01-01T00:00:00Z"),
        ("0005-01-01T00:00:00Z", "0005-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times(text: str, kept: str | None) -> None:
    assert canonical_time(text, micro=False) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2025-02-29T00:00:00Z", 'parsing time "2025-02-29T00:00:00Z": day out of range'),
        ("2025-01-00T00:00:00Z", 'parsing time "2025-01-00T00:00:00Z": day out of range'),
        ("2025-13-01T00:00:00Z", 'parsing time "2025-13-01T00:00:00Z": month out of range'),
        ("2025-01-01T24:00:00Z", 'parsing time "2025-01-01T24:00:00Z": hour out of range'),
        ("2016-12-31T23:59:60Z", 'parsing time "2016-12-31T23:59:60Z": second out of range'),
        ("2025-01-01T00:00:00", f'parsing time "2025-01-01T00:00:00{RFC3339} "" as "Z07:00"'),
        ("2025-01-01", f'parsing time "2025-01-01{RFC3339} "" as "T"'),
        ("x", f'parsing time "x{RFC3339} "x" as "2006"'),
        ("2025-01-01t00:00:00z", f'parsing time "2025-01-01t00:00:00z{RFC3339} "t00:00:00z" as "T"'),
        ("2025-01-01T00:00:00Zx", 'parsing time "2025-01-01T00:00:00Zx": extra text: "x"'),
        ("0000-01-01T00:00:00Z", 'parsing time "0000-01-01T00:00:00Z": year out of range'),
        ("9999-12-31T23:59:59-12:00", 'parsing time "9999-12-31T23:59:59-12:00": year out of range'),
    ],
)
def test_no_times(text: str, message: str) -> None:
    with pytest.raises(GoValueError) as caught:
        canonical_time(text, micro=False)
    assert str(caught.value) == message


def test_times_in_microseconds_have_six_digits() -> None:
    assert canonical_time("2025-01-01T00:00:00.000005Z", micro=True) == "2025-01-01T00:00:00.000005Z"
    with pytest.raises(GoValueError) as caught:
        canonical_time("2025-01-01T00:00:00.5Z", micro=True)
    assert str(caught.value) == (
        'parsing time "2025-01-01T00:00:00.5Z" as "2006-01-02T15:04:05.000000Z07:00": '
        'cannot parse ".5Z" as ".000000"'
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid syntax"),
        ("x", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("1.0", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("٣", "invalid syntax"),
        ("18446744073709551616", "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
def test_no_numbers(text: str, problem: str) -> None:
    for parse, name in ((parse_int, "ParseInt"), (parse_uint, "ParseUint")):
        with pytest.raises(GoValueError) as caught:
            parse(text)
        assert str(caught.value) == f'strconv.{name}: parsing "{text}": {problem}'


def test_numbers() -> None:
    assert parse_int("-9223372036854775808") == -(2**63)
    assert parse_uint("18446744073709551615") == 2**64 - 1
    assert parse_uint("0" * 5000 + "7") == 7
    with pytest.raises(GoValueError, match="value out of range"):
        parse_int("9223372036854775808")
