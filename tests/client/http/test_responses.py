"""Answers are the same however they are cut on their way."""

from __future__ import annotations

import pytest

from bayplan.client.transport import ApiResponse, MalformedError, ResponseReader

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*pieces: bytes, ends: bool = False) -> tuple[ApiResponse | None, bool]:
    """The answer, and whether the connection can be used again after it."""
    reader = ResponseReader()
    for piece in pieces:
        reader.feed(piece)
    if ends:
        reader.end()
    return reader.response, not reader.will_close


ANSWERS = [
    pytest.param(PLAIN, ApiResponse(201, "", b"hello"), True, id="a length"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ApiResponse(200, "", b""), True, id="nothing"
    ),
    pytest.param(
        b"HTTP/1.1 204 No Content\r\n\r\n", ApiResponse(204, "", b""), True, id="no content, no length"
    ),
    pytest.param(
        CHUNKED + b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", ApiResponse(200, "", b"hello!"), True, id="chunks"
    ),
    pytest.param(
        CHUNKED + b"a\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\nX: y\r\n\r\n",
        ApiResponse(200, "", b"\r\n" * 5),
        True,
        id="a chunk of line breaks, and a trailer",
    ),
    pytest.param(
        b"HTTP/1.1 429 Too Many Requests\r\nRETRY-AFTER: 7\r\ncontent-length: 2\r\n\r\n{}",
        ApiResponse(429, "7", b"{}"),
        True,
        id="when to try again, in any case",
    ),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
        ApiResponse(201, "", b"hello"),
        True,
        id="an interim answer first",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n!",
        ApiResponse(200, "", b"!"),
        False,
        id="the server will close",
    ),
    pytest.param(
        b"HTTP/1.0 503 Busy\r\nContent-Length: 1\r\n\r\n!",
        ApiResponse(503, "", b"!"),
        False,
        id="an old proxy",
    ),
]


@pytest.mark.parametrize(("data", "expected", "can_be_kept"), ANSWERS)
def test_an_answer_cut_anywhere(data: bytes, expected: ApiResponse, can_be_kept: bool) -> None:
    cuts = [(data[:i], data[i:]) for i in range(len(data))]
    single = tuple(data[i : i + 1] for i in range(len(data)))
    assert {read(*pieces) for pieces in (*cuts, single)} == {(expected, can_be_kept)}


@pytest.mark.parametrize(("data", "expected", "can_be_kept"), ANSWERS)
def test_an_answer_is_not_there_before_its_end(data: bytes, expected: ApiResponse, can_be_kept: bool) -> None:
    assert {read(data[:i], ends=True)[0] for i in range(len(data))} == {None}


@pytest.mark.parametrize(("data", "expected", "can_be_kept"), ANSWERS)
def test_a_body_can_be_taken_piece_by_piece(data: bytes, expected: ApiResponse, can_be_kept: bool) -> None:
    reader, taken = ResponseReader(), []
    for index in range(len(data)):
        reader.feed(data[index : index + 1])
        taken.append(reader.take())
    assert reader.response == expected._replace(body=b"")
    assert b"".join(taken) == expected.body


def test_a_part_of_a_chunk_can_be_taken() -> None:
    reader = ResponseReader()
    reader.feed(CHUNKED + b"a\r\nabc")
    assert reader.take() == b"abc"
    reader.feed(b"defg")
    assert reader.take() == b"defg"
    reader.feed(b"hij\r")
    assert reader.take() == b"hij"
    reader.feed(b"\n0\r\n\r\n")
    assert (reader.take(), reader.response) == (b"", ApiResponse(200, "", b""))


def test_a_body_that_ends_with_the_connection() -> None:
    pieces = (b"HTTP/1.0 502 Bad\r\n\r\n<html>", b"sorry")
    assert read(*pieces)[0] is None
    assert read(*pieces, ends=True) == (ApiResponse(502, "", b"<html>sorry"), False)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no status"),
        pytest.param(PLAIN + b"more", id="more than Content-Length"),
        pytest.param(CHUNKED + b"zz\r\n", id="no size"),
        pytest.param(CHUNKED + b"-6\r\n", id="a negative size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", id="a negative length"),
    ],
)
def test_what_is_no_answer_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_the_rejection_is_our_own() -> None:
    with pytest.raises(MalformedError, match="malformed HTTP response"):
        read(b"SSH-2.0-OpenSSH\r\n\r\n")
