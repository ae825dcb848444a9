"""The functions of device selectors with all their overloads: the environment that Kubernetes defines.

There is one line per overload: its id, then its signature. `string :: contains(string)` is called on a
string, `size(string)` is not. Single capital letters are type parameters. The order within a function
matters: the first overload that fits decides the result type, and all that fit take part in the cost
estimate.

There is no math.* and no base64.*: those libraries are not part of the environment. The functions of the
authorizer are, but not the variable that they are called on, so expressions that use them are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from bayplan.cel import types
from bayplan.cel.types import Type

_TABLE: Final = """
conditional                  _?_:_(bool, A, A) -> A
logical_and                  _&&_(bool, bool) -> bool
logical_or                   _||_(bool, bool) -> bool
logical_not                  !_(bool) -> bool
not_strictly_false           @not_strictly_false(bool) -> bool
equals                       _==_(A, A) -> bool
not_equals                   _!=_(A, A) -> bool

add_bytes                    _+_(bytes, bytes) -> bytes
add_double                   _+_(double, double) -> double
add_duration_duration        _+_(duration, duration) -> duration
add_duration_timestamp       _+_(duration, timestamp) -> timestamp
add_timestamp_duration       _+_(timestamp, duration) -> timestamp
add_int64                    _+_(int, int) -> int
add_list                     _+_(list(A), list(A)) -> list(A)
add_string                   _+_(string, string) -> string
add_uint64                   _+_(uint, uint) -> uint
divide_double                _/_(double, double) -> double
divide_int64                 _/_(int, int) -> int
divide_uint64                _/_(uint, uint) -> uint
modulo_int64                 _%_(int, int) -> int
modulo_uint64                _%_(uint, uint) -> uint
multiply_double              _*_(double, double) -> double
multiply_int64               _*_(int, int) -> int
multiply_uint64              _*_(uint, uint) -> uint
negate_double                -_(double) -> double
negate_int64                 -_(int) -> int
subtract_double              _-_(double, double) -> double
subtract_duration_duration   _-_(duration, duration) -> duration
subtract_int64               _-_(int, int) -> int
subtract_timestamp_duration  _-_(timestamp, duration) -> timestamp
subtract_timestamp_timestamp _-_(timestamp, timestamp) -> duration
subtract_uint64              _-_(uint, uint) -> uint

index_list                   _[_](list(A), int) -> A
index_map                    _[_](map(A, B), A) -> B
optional_list_index_int      _[_](optional(list(V)), int) -> optional(V)
optional_map_index_value     _[_](optional(map(K, V)), K) -> optional(V)
in_list                      @in(A, list(A)) -> bool
in_map                       @in(A, map(A, B)) -> bool

size_bytes                   size(bytes) -> int
bytes_size                   bytes :: size() -> int
size_list                    size(list(A)) -> int
list_size                    list(A) :: size() -> int
size_map                     size(map(A, B)) -> int
map_size                     map(A, B) :: size() -> int
size_string                  size(string) -> int
string_size                  string :: size() -> int

type                         type(A) -> type(A)
to_dyn                       dyn(A) -> dyn
bool_to_bool                 bool(bool) -> bool
string_to_bool               bool(string) -> bool
bytes_to_bytes               bytes(bytes) -> bytes
string_to_bytes              bytes(string) -> bytes
double_to_double             double(double) -> double
int64_to_double              double(int) -> double
string_to_double             double(string) -> double
uint64_to_double             double(uint) -> double
duration_to_duration         duration(duration) -> duration
int64_to_duration            duration(int) -> duration
string_to_duration           duration(string) -> duration
int64_to_int64               int(int) -> int
double_to_int64              int(double) -> int
duration_to_int64            int(duration) -> int
string_to_int64              int(string) -> int
timestamp_to_int64           int(timestamp) -> int
uint64_to_int64              int(uint) -> int
string_to_string             string(string) -> string
bool_to_string               string(bool) -> string
bytes_to_string              string(bytes) -> string
double_to_string             string(double) -> string
duration_to_string           string(duration) -> string
int64_to_string              string(int) -> string
timestamp_to_string          string(timestamp) -> string
uint64_to_string             string(uint) -> string
ip_to_string                 string(IP) -> string
cidr_to_string               string(CIDR) -> string
timestamp_to_timestamp       timestamp(timestamp) -> timestamp
int64_to_timestamp           timestamp(int) -> timestamp
string_to_timestamp          timestamp(string) -> timestamp
uint64_to_uint64             uint(uint) -> uint
double_to_uint64             uint(double) -> uint
int64_to_uint64              uint(int) -> uint
string_to_uint64             uint(string) -> uint

contains_string              string :: contains(string) -> bool
ends_with_string             string :: endsWith(string) -> bool
starts_with_string           string :: startsWith(string) -> bool
matches                      matches(string, string) -> bool
matches_string               string :: matches(string) -> bool

string_char_at_int              string :: charAt(int) -> string
string_index_of_string          string :: indexOf(string) -> int
string_index_of_string_int      string :: indexOf(string, int) -> int
list_a_index_of_int             list(A) :: indexOf(A) -> int
string_last_index_of_string     string :: lastIndexOf(string) -> int
string_last_index_of_string_int string :: lastIndexOf(string, int) -> int
list_a_last_index_of_int        list(A) :: lastIndexOf(A) -> int
string_lower_ascii              string :: lowerAscii() -> string
string_upper_ascii              string :: upperAscii() -> string
string_replace_string_string    string :: replace(string, string) -> string
string_replace_string_string_int string :: replace(string, string, int) -> string
string_split_string             string :: split(string) -> list(string)
string_split_string_int         string :: split(string, int) -> list(string)
string_substring_int            string :: substring(int) -> string
string_substring_int_int        string :: substring(int, int) -> string
string_trim                     string :: trim() -> string
string_format                   string :: format(list(dyn)) -> string
strings_quote                   strings.quote(string) -> string
list_join                       list(string) :: join() -> string
list_join_string                list(string) :: join(string) -> string
string_find_string              string :: find(string) -> string
string_find_all_string          string :: findAll(string) -> list(string)
string_find_all_string_int      string :: findAll(string, int) -> list(string)

list_sets_contains_list         sets.contains(list(T), list(T)) -> bool
list_sets_equivalent_list       sets.equivalent(list(T), list(T)) -> bool
list_sets_intersects_list       sets.intersects(list(T), list(T)) -> bool
list_slice                      list(T) :: slice(int, int) -> list(T)
list_flatten                    list(list(T)) :: flatten() -> list(T)
list_flatten_int                list(dyn) :: flatten(int) -> list(dyn)
lists_range                     lists.range(int) -> list(int)
list_reverse                    list(T) :: reverse() -> list(T)
list_distinct                   list(T) :: distinct() -> list(T)
@mapInsert_map_key_value        cel.@mapInsert(map(K, V), K, V) -> map(K, V)
@mapInsert_map_map              cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)

optional_of                          optional.of(V) -> optional(V)
optional_ofNonZeroValue              optional.ofNonZeroValue(V) -> optional(V)
optional_none                        optional.none() -> optional(V)
optional_value                       optional(V) :: value() -> V
optional_hasValue                    optional(V) :: hasValue() -> bool
optional_or_optional                 optional(V) :: or(optional(V)) -> optional(V)
optional_orValue_value               optional(V) :: orValue(V) -> V
select_optional_field                _?._(dyn, string) -> optional(V)
list_optindex_optional_int           _[?_](list(V), int) -> optional(V)
optional_list_optindex_optional_int  _[?_](optional(list(V)), int) -> optional(V)
map_optindex_optional_value          _[?_](map(K, V), K) -> optional(V)
optional_map_optindex_optional_value _[?_](optional(map(K, V)), K) -> optional(V)
list_last                            list(V) :: last() -> optional(V)
list_first                           list(V) :: first() -> optional(V)
optional_unwrap                      optional.unwrap(list(optional(V))) -> list(V)
optional_unwrapOpt                   list(optional(V)) :: unwrapOpt() -> list(V)

string_to_quantity           quantity(string) -> Quantity
is_quantity_string           isQuantity(string) -> bool
quantity_sign                sign(Quantity) -> int
quantity_is_greater_than     Quantity :: isGreaterThan(Quantity) -> bool
semver_is_greater_than       Semver :: isGreaterThan(Semver) -> bool
quantity_is_less_than        Quantity :: isLessThan(Quantity) -> bool
semver_is_less_than          Semver :: isLessThan(Semver) -> bool
quantity_compare_to          Quantity :: compareTo(Quantity) -> int
semver_compare_to            Semver :: compareTo(Semver) -> int
quantity_get_float           Quantity :: asApproximateFloat() -> double
quantity_get_int             Quantity :: asInteger() -> int
quantity_is_integer          Quantity :: isInteger() -> bool
quantity_add                 Quantity :: add(Quantity) -> Quantity
quantity_add_int             Quantity :: add(int) -> Quantity
quantity_sub                 Quantity :: sub(Quantity) -> Quantity
quantity_sub_int             Quantity :: sub(int) -> Quantity
string_to_semver             semver(string) -> Semver
string_bool_to_semver        semver(string, bool) -> Semver
is_semver_string             isSemver(string) -> bool
is_semver_string_bool        isSemver(string, bool) -> bool
semver_major                 Semver :: major() -> int
semver_minor                 Semver :: minor() -> int
semver_patch                 Semver :: patch() -> int

string_to_ip                 ip(string) -> IP
cidr_ip                      CIDR :: ip() -> IP
is_ip                        isIP(string) -> bool
ip_is_canonical              ip.isCanonical(string) -> bool
ip_family                    IP :: family() -> int
ip_is_unspecified            IP :: isUnspecified() -> bool
ip_is_loopback               IP :: isLoopback() -> bool
ip_is_link_local_multicast   IP :: isLinkLocalMulticast() -> bool
ip_is_link_local_unicast     IP :: isLinkLocalUnicast() -> bool
ip_is_global_unicast         IP :: isGlobalUnicast() -> bool
string_to_cidr               cidr(string) -> CIDR
is_cidr                      isCIDR(string) -> bool
cidr_contains_ip_string      CIDR :: containsIP(string) -> bool
cidr_contains_ip_ip          CIDR :: containsIP(IP) -> bool
cidr_contains_cidr_string    CIDR :: containsCIDR(string) -> bool
cidr_contains_cidr           CIDR :: containsCIDR(CIDR) -> bool
cidr_prefix_length           CIDR :: prefixLength() -> int
cidr_masked                  CIDR :: masked() -> CIDR
string_to_url                url(string) -> URL
is_url_string                isURL(string) -> bool
url_get_scheme               URL :: getScheme() -> string
url_get_host                 URL :: getHost() -> string
url_get_hostname             URL :: getHostname() -> string
url_get_port                 URL :: getPort() -> string
url_get_escaped_path         URL :: getEscapedPath() -> string
url_get_query                URL :: getQuery() -> map(string, list(string))
format-validate              Format :: validate(string) -> optional(list(string))
format-named                 format.named(string) -> optional(Format)

authorizer_path                       Authorizer :: path(string) -> PathCheck
authorizer_group                      Authorizer :: group(string) -> GroupCheck
authorizer_serviceaccount             Authorizer :: serviceAccount(string, string) -> Authorizer
groupcheck_resource                   GroupCheck :: resource(string) -> ResourceCheck
resourcecheck_subresource             ResourceCheck :: subresource(string) -> ResourceCheck
resourcecheck_namespace               ResourceCheck :: namespace(string) -> ResourceCheck
resourcecheck_name                    ResourceCheck :: name(string) -> ResourceCheck
resourcecheck_fieldselector           ResourceCheck :: fieldSelector(string) -> ResourceCheck
resourcecheck_labelselector           ResourceCheck :: labelSelector(string) -> ResourceCheck
pathcheck_check                       PathCheck :: check(string) -> Decision
resourcecheck_check                   ResourceCheck :: check(string) -> Decision
decision_errored                      Decision :: errored() -> bool
decision_error                        Decision :: error() -> string
decision_allowed                      Decision :: allowed() -> bool
decision_reason                       Decision :: reason() -> string
"""

FORMATS: Final = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip
"""Names of the formats, each of which is a function `format.<name>()`."""

QUANTITY: Final = types.object_type("kubernetes.Quantity")
SEMVER: Final = types.object_type("kubernetes.Semver")
FORMAT: Final = types.object_type("kubernetes.NamedFormat")
URL: Final = types.object_type("kubernetes.URL")
IP: Final = types.opaque_type("net.IP")
CIDR: Final = types.opaque_type("net.CIDR")

_NAMED: Final = {
    **{each.name: each for each in (
        types.BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES, types.DYN,
        types.TIMESTAMP, types.DURATION,
    )},
    **{name: types.object_type(f"kubernetes.authorization.{name}") for name in (
        "Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision",
    )},
    "Quantity": QUANTITY, "Semver": SEMVER, "Format": FORMAT, "URL": URL, "IP": IP, "CIDR": CIDR,
}  # fmt: skip
SINGLE_IMPLEMENTATION: Final = frozenset({
    "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in",
    "size",
    "contains", "startsWith", "endsWith", "matches", "sort", "@sortByAssociatedKeys",
})  # fmt: skip
"""Functions whose overloads share one implementation, so that nothing has to be chosen at run time."""
_ORDERED: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = ("int", "uint", "double", "duration")
_TYPE_NAMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_COMPARED: Final = (
    ("bool", "bool"), ("int64", "int64"), ("int64", "double"), ("int64", "uint64"), ("uint64", "uint64"),
    ("uint64", "double"), ("uint64", "int64"), ("double", "double"), ("double", "int64"),
    ("double", "uint64"), ("string", "string"), ("bytes", "bytes"), ("timestamp", "timestamp"),
    ("duration", "duration"),
)  # fmt: skip
_TIME_PARTS: Final = {
    "year": "getFullYear", "month": "getMonth", "day_of_year": "getDayOfYear",
    "day_of_month": "getDayOfMonth", "day_of_month_1_based": "getDate", "day_of_week": "getDayOfWeek",
    "hours": "getHours", "minutes": "getMinutes", "seconds": "getSeconds", "milliseconds": "getMilliseconds",
}  # fmt: skip
"""Functions of timestamps, in UTC or a zone; the last four also of durations."""
_COMPARISONS: Final = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
_SIGNATURE: Final = re.compile(
    r"(?:(?P<target>\S.*?) :: )?(?P<name>[^ (]+)\((?P<args>.*)\) -> (?P<result>.+)"
)


@dataclass(frozen=True, slots=True)
class Overload:
    id: str
    args: tuple[Type, ...]
    """The target first, if it is called on one."""
    result: Type
    is_member: bool


@cache
def functions() -> dict[str, list[Overload]]:
    """All overloads by the name of their function."""
    found: dict[str, list[Overload]] = {}
    for line in _lines():
        overload_id, _, signature = line.partition(" ")
        name, overload = _parse(overload_id, signature.strip())
        found.setdefault(name, []).append(overload)
    return found


@cache
def type_names() -> dict[str, Type]:
    """Names of types that an expression can mention, such as `int` in `type(x) == int`."""
    return {
        **{name: each for name, each in _NAMED.items() if name.islower() and each != types.DYN},
        "null_type": types.NULL,
        "list": types.list_of(types.parameter("A")),
        "map": types.map_of(types.parameter("A"), types.parameter("B")),
        "type": types.Type("type", "type"),
        "optional_type": types.opaque_type("optional_type"),
        "google.protobuf.Duration": types.DURATION,
        "google.protobuf.Timestamp": types.TIMESTAMP,
        **{each.name: each for each in (IP, CIDR)},
    }


def _lines() -> Iterator[str]:
    yield from filter(None, map(str.strip, _TABLE.splitlines()))
    for function, prefix in _COMPARISONS.items():
        for left, right in _COMPARED:
            suffix = left if left == right else f"{left}_{right}"
            args = f"{left.removesuffix('64')}, {right.removesuffix('64')}"
            yield f"{prefix}_{suffix} {function}({args}) -> bool"
    for part, function in _TIME_PARTS.items():
        with_zone = "seconds_tz" if part == "seconds" else f"{part}_with_tz"
        yield f"timestamp_to_{part} timestamp :: {function}() -> int"
        yield f"timestamp_to_{with_zone} timestamp :: {function}(string) -> int"
        if part.endswith("s"):
            yield f"duration_to_{part} duration :: {function}() -> int"
    for name in _ORDERED:
        full = _TYPE_NAMES.get(name, name)
        yield f"list_{name}_is_sorted_bool list({name}) :: isSorted() -> bool"
        yield f"list_{name}_max_{name} list({name}) :: max() -> {name}"
        yield f"list_{name}_min_{name} list({name}) :: min() -> {name}"
        yield f"list_{full}_sort list({name}) :: sort() -> list({name})"
        yield f"list_{full}_sortByAssociatedKeys list(T) :: @sortByAssociatedKeys(list({name})) -> list(T)"
    for name in _SUMMABLE:
        yield f"list_{name}_sum_{name} list({name}) :: sum() -> {name}"
    for name in FORMATS:
        yield f"format.{name} format.{name}() -> Format"


def _parse(overload_id: str, signature: str) -> tuple[str, Overload]:
    found = _SIGNATURE.fullmatch(signature)
    assert found is not None, signature
    target = found["target"]
    texts = ([target] if target else []) + _split(found["args"])
    args = tuple(map(_type, texts))
    return found["name"], Overload(overload_id, args, _type(found["result"]), target is not None)


def _type(text: str) -> Type:
    name, has_parameters, rest = text.partition("(")
    if not has_parameters:
        return types.parameter(text) if len(text) == 1 else _NAMED[text]
    parameters = [_type(each) for each in _split(rest[:-1])]
    match name:
        case "list":
            return types.list_of(*parameters)
        case "map":
            return types.map_of(*parameters)
        case "optional":
            return types.optional_of(*parameters)
        case _:
            return types.type_of(*parameters)


def _split(text: str) -> list[str]:
    """Arguments between commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()] if text else []
