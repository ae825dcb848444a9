"""Field errors in Kubernetes' words.

    profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]

Tools and people match these texts, so they are exact: strings are quoted as Go quotes them, numbers are
plain, everything else is compact JSON as Go writes it (which escapes `<`, `>` and `&`). Plugin arguments
report their errors with these functions, those of your own plugins included; `bayplan.config` collects them.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from bayplan.framework.plugin_args.duration import Duration


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field."""

    path: str
    """The path of the field, `profiles[0].pluginConfig[1].args.shape`."""
    message: str
    """The kind of error, then value and detail."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def at(path: str, *parts: str | int) -> str:
    """The path of something inside `path`: names follow a dot, indexes are in brackets."""
    for part in parts:
        if isinstance(part, int):
            path = f"{path}[{part}]"
        else:
            path = f"{path}.{part}" if path else part
    return path


def required(path: str, detail: str = "") -> FieldError:
    """A required field is missing."""
    return FieldError(path, _joined("Required value", detail))


def forbidden(path: str, detail: str) -> FieldError:
    """A field is set that must not be set here."""
    return FieldError(path, _joined("Forbidden", detail))


def invalid(path: str, value: object, detail: str) -> FieldError:
    """A field holds a value that is not allowed."""
    return FieldError(path, _joined(f"Invalid value: {shown(value)}", detail))


def duplicate(path: str, value: object) -> FieldError:
    """A value that must be unique occurs again."""
    return FieldError(path, f"Duplicate value: {shown(value)}")


def unsupported(path: str, value: str, supported: Sequence[str]) -> FieldError:
    """A field has a value other than the supported ones."""
    choices = ", ".join(map(quoted, supported))
    return FieldError(path, f"Unsupported value: {shown(value)}: supported values: {choices}")


def aggregate(errors: Iterable[FieldError]) -> str:
    """All errors as one text: a single one bare, several as `[e1, e2]`, equal texts once, none as ""."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def shown(value: object) -> str:
    """A value as field errors print it."""
    match value:
        case str():
            return quoted(value)
        case None:
            # Upstream converts a missing value to the word, and then quotes the word.
            return '"null"'
        case _:
            return compact_json(value)


def quoted(text: str) -> str:
    """A string between double quotes, escaped as Go's `%q` does."""
    return f'"{"".join(map(_escaped, text))}"'


def compact_json(value: object) -> str:
    """JSON without spaces, with the three characters escaped that Go escapes for the sake of HTML."""
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _joined(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


_SHORT_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    if character == " " or unicodedata.category(character)[0] in "LMNPS":
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _plain(value: object) -> object:
    """A value made of what `json` can write; records get capitalised keys, as upstream's internal types."""
    match value:
        case Duration():
            return str(value)
        case msgspec.Struct():
            return dict(_capitalised_fields(value))
        case dict():
            return {str(key): _plain(element) for key, element in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
        case _:
            return value


def _capitalised_fields(record: msgspec.Struct) -> Iterator[tuple[str, object]]:
    for name in record.__struct_fields__:
        yield "".join(word.capitalize() for word in name.split("_")), _plain(getattr(record, name))
