"""Regular expressions that users write, in time linear in the length of the text.

Kubernetes compiles the `pattern` of a schema and the expressions in CEL with Go's regexp package, whose
syntax is RE2's: it does not backtrack, so no expression takes hours. This is the same engine; what it rejects
(look-ahead, back-references), kube-apiserver rejects as well.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


_ANY_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
"""What RE2 supports and Go does not."""
_KINDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""What RE2 says, and what Go says."""


class PatternError(ValueError):
    """It is not a regular expression in the syntax of RE2."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Any:
    """Raises: PatternError: kube-apiserver would not accept it."""
    if _ANY_BYTE.search(pattern):
        raise PatternError(r"error parsing regexp: invalid escape sequence: `\C`")
    try:
        return re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        kind, _, part = text.partition(": ")
        raise PatternError(f"error parsing regexp: {_KINDS.get(kind, kind)}: `{part}`") from error
