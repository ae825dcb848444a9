"""A configuration file as a tree in which every value has its line.

`api/yaml_values.py` interprets scalars; here a key may occur only once in a mapping, including merged keys. A
text that begins with `{` is parsed as JSON.

`decoding.py` makes typed records from this tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

from bayplan.api.nesting import TOO_DEEP
from bayplan.api.yaml_reader import MAX_VALUES, LocatedReader, Value, yaml_errors
from bayplan.errors import DecodeError

__all__ = ["Value", "parse_document", "parse_documents"]

_SURROGATES: Final = re.compile(
    r"((?<!\\)(?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


def parse_document(text: str, source: str) -> Value:
    """Read YAML or JSON; of several YAML documents only the first counts.

    Raises:
        DecodeError: the text is neither, or a key occurs twice in one mapping.
    """
    return next(parse_documents(text, source), Value(None, 1))


def parse_documents(text: str, source: str) -> Iterator[Value]:
    """All documents, each parsed on demand: the text after the last one may be anything.

    Raises:
        DecodeError: as `parse_document`.
    """
    is_json = text.lstrip().startswith("{")
    with yaml_errors(text, source):
        if is_json:
            text = _checked_json(text)
        reader = LocatedReader(text, max_values=MAX_VALUES, keep_floats=is_json)
        for document in reader.documents():
            yield document.value


def _checked_json(text: str) -> str:
    """The text, known to be JSON, without what YAML does not know.

    That is tabs between values, and characters beyond 16 bits written as two escapes.
    """
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise DecodeError(f"this is not JSON: {error.msg}", line=error.lineno) from None
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None
    except ValueError as error:
        raise DecodeError(f"this is not JSON: {error}") from None
    return _SURROGATES.sub(_long_escape, text.replace("\t", " "))


def _long_escape(pair: re.Match[str]) -> str:
    before, high, low = pair.groups()
    return f"{before}\\U{0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00:08x}"


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
