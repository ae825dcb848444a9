"""The language beyond what was recorded: syntax, types, values, libraries and limits."""

from __future__ import annotations

import pytest

from bayplan.cel import CompileError, EvaluationError, compile_selector, device_variables

DEVICE = device_variables(
    "gpu.example.com",
    {
        "model": {"string": "a100"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.10.0"},
        "other.example.org/size": {"int": 7},
    },
    {"memory": {"value": "80Gi"}},
)


def holds(expression: str) -> bool:
    return compile_selector(expression).evaluate(DEVICE).matches


def failure(expression: str) -> str:
    with pytest.raises(EvaluationError) as raised:
        holds(expression)
    return str(raised.value)


def compile_error(expression: str) -> str:
    with pytest.raises(CompileError) as raised:
        compile_selector(expression)
    return str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "!!true && !(!true)",
        "1 < 1.5 && 2u >= 1 && 1.0 <= 1u",
        "0x1F == 31 && 7u == 7u && 1e3 == 1000.0 && .5 == 0.5",
        r"'\x41\u00e9\101' == 'AéA' && r'\n'.size() == 2",
        '"""a\nb""".size() == 3',
        r"b'\xff'.size() == 1 && b'é'.size() == 2",
        "true ? true : false",
        "{'a': 1, 'b': 2}.size() == 2 && {1: true}[1]",
        "[1, 2, 3].filter(x, x > 1) == [2, 3]",
        "[1, 2].map(x, x > 1, x * 10) == [20]",
        "[1, 2, 3].exists_one(x, x > 2) && [1, 2].existsOne(i, v, v > 1)",
        "{'a': 1}.transformMap(k, v, v > 0, v + 1) == {'a': 2}",
        "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "cel.bind(x, 2, cel.bind(y, x + 1, x * y)) == 6",
        "optional.of(1).or(optional.none()).value() == 1",
        "[1, 2][?5].orValue(9) == 9 && {'a': {'b': 1}}.?a.?b.value() == 1",
        "[?optional.none(), ?optional.of(2)] == [2]",
        "optional.of(3).optFlatMap(x, optional.of(x + 1)) == optional.of(4)",
        "has({'a': 1}.a) && !has({'a': 1}.b)",
        "device.attributes['nosuch'].size() == 0 && !('nosuch' in device.attributes)",
        "device.attributes[?'gpu.example.com'].hasValue()",
        "type(1) == int && type('') == string && type(device.driver) != bytes",
        "int('42') == 42 && uint(3) == 3u && double('1.5') == 1.5 && bool('true') && string(1.5) == '1.5'",
        "duration('1h30m').getMinutes() == 90 && timestamp('2024-02-29T00:00:00Z').getDate() == 29",
        "timestamp('2024-01-01T23:00:00Z').getHours('+02:00') == 1",
        "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
        "'a-b-c'.split('-', 2) == ['a', 'b-c'] && 'abc'.substring(1, 2) == 'b'",
        "'%s: %s'.format(['a', 'b']) == 'a: b' && '%d%%'.format([3]) == '3%'",
        "strings.quote('a\"b') == '\"a\\\\\"b\"'",
        "'tacocat'.indexOf('c', 3) == 4 && 'tacocat'.lastIndexOf('c') == 4 && 'abc'.charAt(3) == ''",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2])",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && lists.range(3) == [0, 1, 2]",
        "[1, 1, 2].distinct() == [1, 2] && [1, 2].last() == optional.of(2) && [2, 1].isSorted() == false",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'abc'.matches('^a.c$')",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "!isIP('::ffff:1.2.3.4') && ip('fe80::1').isLinkLocalUnicast()",
        "url('https://user@example.com:8443/a b?x=1&x=2').getPort() == '8443'",
        "format.dns1123Label().validate('Nope').hasValue() && format.named('uuid').hasValue()",
        "quantity('1000m').compareTo(quantity('1')) == 0 && !quantity('1000m').isInteger()",
        "quantity('1').add(quantity('500m')).asApproximateFloat() == 1.5",
        "semver('v1.02', true) == semver('1.2.0') && semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.11'))",
        "device.attributes['gpu.example.com'].driverVersion.minor() == 10",
        "false || device.attributes['gpu.example.com'].ecc",
        "device.attributes['gpu.example.com'].nosuch == 1 || true",
    ],
)
def test_expressions_that_hold(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("0u - 1u == 0u", "unsigned integer overflow"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("{'a': 1}.b == 1", "no such key: b"),
        ("device.attributes['gpu.example.com'].index.size() == 1", "no such overload: size"),
        ("device.attributes['gpu.example.com'].driverVersion == '1.10.0'", "no such overload"),
        ("quantity('1') == quantity('1').add(0)", "no such overload"),
        ("quantity('1Mm').isInteger()", "unable to parse quantity's suffix"),
        ("semver('1.x.0') == semver('1.0.0')", 'Invalid character(s) found in minor number "x"'),
        ("[1].slice(0, 2) == [1]", "cannot slice(0, 2), list is length 1"),
        ("device.attributes['gpu.example.com'].index ? true : false", "no such overload"),
        ("{'a': 1}.transformMapEntry(k, v, {'x': 1, 'y': 2}).a == 1", "no such key: a"),
    ],
)
def test_evaluation_errors(expression: str, text: str) -> None:
    assert failure(expression) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("has(device)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("{'a': 1}.all(k, k, true)", "duplicate variable name: k"),
        ("1 ? true : false", "found no matching overload for '_?_:_' applied to '(int, bool, bool)'"),
        ("1 && true", "expected type 'bool' but found 'int'"),
        ("device.driver.all(x, true)", "cannot be range of a comprehension"),
        ("device.driver.nosuch()", "undeclared reference to 'nosuch'"),
        ("device.driver.x == 1", "type 'string' does not support field selection"),
        ("for == 1", "reserved identifier: for"),
        ("99999999999999999999 == 1", "invalid int literal"),
        ("'\\ud800' == ''", "invalid string literal"),
        ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"),
        ("duration('x') == duration('1s')", "invalid duration argument"),
        ("(true", "expecting ')'"),
        ("true false", "extraneous input 'false' expecting <EOF>"),
        ("Foo{a: 1}.a == 1", "undeclared reference to 'Foo'"),
        ("[1, 'a'] == [1]", "expected type 'int' but found 'string'"),
        ("math.greatest(1, 2) == 2", "undeclared reference to 'math'"),
    ],
)
def test_compile_errors(expression: str, text: str) -> None:
    assert text in compile_error(expression)


def test_a_problem_is_shown_in_its_line() -> None:
    assert compile_error("true &&\n  1") == (
        "compilation failed: ERROR: <input>:2:3: expected type 'bool' but found 'int'\n |   1\n | ..^"
    )


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000 + "true" + ")" * 5000, "1" + "+1" * 5000 + " == 1", "[" * 5000, "!(" * 3000 + "true"],
    ids=["parentheses", "a long sum", "brackets", "negations"],
)
def test_nesting_is_limited_and_ends_in_an_error_of_its_own(expression: str) -> None:
    assert "expression recursion limit exceeded: 250" in compile_error(expression)


def test_a_long_chain_of_alternatives_is_not_nesting() -> None:
    assert holds(" || ".join(["device.driver == 'x'"] * 400 + ["true"]))


def test_an_expression_that_costs_too_much_is_stopped() -> None:
    selector = compile_selector("lists.range(100000).all(x, lists.range(100000).all(y, x + y >= 0))")
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded") as raised:
        selector.matches(DEVICE)
    assert raised.value.cost == 0 or raised.value.cost > 1_000_000


def test_no_operator_swallows_the_cost_limit() -> None:
    expression = "true || lists.range(1000000).all(x, x >= 0)"
    assert compile_selector(expression).evaluate(DEVICE).matches
    selector = compile_selector("lists.range(1000000).all(x, x >= 0) || true")
    with pytest.raises(EvaluationError, match="cost limit"):
        selector.evaluate(DEVICE)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ({"strings": ["a"]}, "attribute model: unsupported attribute value"),
        ({}, "attribute model: unsupported attribute value"),
        ({"version": "1"}, "attribute model: parse semantic version: No Major.Minor.Patch elements found"),
    ],
    ids=["a list", "no value", "not a version"],
)
def test_attributes_that_selectors_cannot_read(attribute: dict[str, object], text: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        device_variables("d", {"model": attribute}, {})
    assert str(raised.value) == text
