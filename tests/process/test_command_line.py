"""Flags as pflag reads them, and the errors for those that it cannot read."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.cli.main import main
from bayplan.framework.args import Duration
from bayplan.process.command_line import ArgumentError, FlagError, parse, usage
from bayplan.process.flags import FLAGS

READ = [
    pytest.param(["--config=a.yaml"], "config", "a.yaml", id="a value after ="),
    pytest.param(["--config", "a.yaml"], "config", "a.yaml", id="a value after a space"),
    pytest.param(["--config", "--v"], "config", "--v", id="a value that looks like a flag"),
    pytest.param(["--config="], "config", "", id="an empty value"),
    pytest.param(["--leader-elect"], "leader-elect", True, id="true without a value"),
    pytest.param(["--leader-elect=false"], "leader-elect", False, id="false"),
    pytest.param(["--leader-elect=0"], "leader-elect", False, id="0 is false"),
    pytest.param(["--leader_elect=F"], "leader-elect", False, id="underscores instead of dashes"),
    pytest.param(["-v=4"], "v", 4, id="a letter with ="),
    pytest.param(["-v", "4"], "v", 4, id="a letter with a space"),
    pytest.param(["-v4"], "v", 4, id="a letter with its value"),
    pytest.param(["--v=2", "-v", "10"], "v", 10, id="the last one counts"),
    pytest.param(["--secure-port=0x10"], "secure-port", 16, id="a hexadecimal number"),
    pytest.param(["--secure-port=010"], "secure-port", 8, id="a leading zero is octal"),
    pytest.param(["--kube-api-qps=-1"], "kube-api-qps", -1.0, id="a negative number"),
    pytest.param(
        ["--leader-elect-lease-duration=1m30s"], "leader-elect-lease-duration", Duration.of(90), id="duration"
    ),
    pytest.param(
        ["--disabled-metrics=a,b", "--disabled-metrics=c"], "disabled-metrics", ("a", "b", "c"), id="lists"
    ),
    pytest.param(
        ["--authorization-always-allow-paths=/x"],
        "authorization-always-allow-paths",
        ("/x",),
        id="a list replaces its default",
    ),
    pytest.param(
        ["--feature-gates=A=true,B=false", "--feature-gates=C=true"],
        "feature-gates",
        ("A=true,B=false", "C=true"),
        id="gates in their order",
    ),
    pytest.param(["--bind-address=::"], "bind-address", "::", id="an IPv6 address"),
    pytest.param([], "secure-port", 10259, id="a default"),
    pytest.param(["--", ""], "secure-port", 10259, id="an empty argument is none"),
]


@pytest.mark.parametrize(("arguments", "name", "value"), READ)
def test_what_is_read(arguments: list[str], name: str, value: Any) -> None:
    flags = parse(arguments, "x")
    assert flags[name] == value
    assert (name in flags.given) == bool(arguments and arguments[0] != "--")


REJECTED = [
    pytest.param(["--foo"], "unknown flag: --foo", id="unknown"),
    pytest.param(["--foo=1"], "unknown flag: --foo", id="unknown with a value"),
    pytest.param(["-x"], "unknown shorthand flag: 'x' in -x", id="unknown letter"),
    pytest.param(["--config"], "flag needs an argument: --config", id="no value"),
    pytest.param(["-v"], "flag needs an argument: 'v' in -v", id="no value after a letter"),
    pytest.param(["--=x"], "bad flag syntax: --=x", id="no name"),
    pytest.param(
        ["--leader-elect=maybe"],
        'invalid argument "maybe" for "--leader-elect" flag: strconv.ParseBool: parsing "maybe": '
        "invalid syntax",
        id="neither true nor false",
    ),
    pytest.param(
        ["--secure-port=http"],
        'invalid argument "http" for "--secure-port" flag: strconv.ParseInt: parsing "http": invalid syntax',
        id="no number",
    ),
    pytest.param(
        ["--kube-api-burst=3000000000"],
        'invalid argument "3000000000" for "--kube-api-burst" flag: '
        'strconv.ParseInt: parsing "3000000000": value out of range',
        id="too large a number",
    ),
    pytest.param(
        ["-v=much"],
        'invalid argument "much" for "-v, --v" flag: strconv.ParseUint: parsing "much": invalid syntax',
        id="a letter's flag is named with both",
    ),
    pytest.param(
        ["--kube-api-qps=fast"],
        'invalid argument "fast" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "fast": '
        "invalid syntax",
        id="no decimal number",
    ),
    pytest.param(
        ["--leader-elect-retry-period=soon"],
        'invalid argument "soon" for "--leader-elect-retry-period" flag: time: invalid duration "soon"',
        id="no duration",
    ),
    pytest.param(
        ["--leader-elect-retry-period=2"],
        'invalid argument "2" for "--leader-elect-retry-period" flag: time: missing unit in duration "2"',
        id="a duration without a unit",
    ),
    pytest.param(
        ["--bind-address=here"],
        'invalid argument "here" for "--bind-address" flag: failed to parse IP: "here"',
        id="no address",
    ),
    pytest.param(
        ["--vmodule=queue"],
        'invalid argument "queue" for "--vmodule" flag: "queue" does not have the pattern=N format',
        id="a module without a level",
    ),
    pytest.param(
        ["--vmodule=a=b"],
        'invalid argument "a=b" for "--vmodule" flag: parsing verbosity in "a=b": '
        'strconv.ParseUint: parsing "b": invalid syntax',
        id="a level that is no number",
    ),
    pytest.param(
        ["--tls-sni-cert-key=a"],
        'invalid argument "a" for "--tls-sni-cert-key" flag: '
        "expected comma separated certificate and key file paths",
        id="a certificate without a key",
    ),
    pytest.param(
        ["--tls-curve-preferences=X25519"],
        'invalid argument "X25519" for "--tls-curve-preferences" flag: '
        'strconv.ParseInt: parsing "X25519": invalid syntax',
        id="a curve by its name",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REJECTED)
def test_what_is_rejected(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(arguments, "x")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(["now"], '["now"]', id="a word"),
        pytest.param(["--leader-elect", "false"], '["false"]', id="a value that belongs after ="),
        pytest.param(["--", "--config=x", "y"], '["--config=x" "y"]', id="what comes after --"),
    ],
)
def test_there_are_no_positional_arguments(arguments: list[str], shown: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(arguments, "bayplan run")
    assert str(caught.value) == f'"bayplan run" does not take any arguments, got {shown}'


def test_the_help_has_every_flag_and_fits() -> None:
    text = usage("bayplan run", 100)
    assert [name for name in FLAGS if f"--{name}" not in text] == []
    assert max(len(line) for line in text.splitlines()) <= 100


ENDS = [
    pytest.param(["--help"], 0, "Usage: bayplan run [flags]", "", id="help"),
    pytest.param(["-h"], 0, "Usage: bayplan run [flags]", "", id="help by its letter"),
    pytest.param(["--version"], 0, "Kubernetes v1.37.1", "", id="version"),
    pytest.param(
        ["--version", "--emulated-version=1.36"], 0, "Kubernetes v1.36.4", "", id="version of the release"
    ),
    pytest.param(
        ["--version=raw"], 0, '{"kubernetes":"v1.37.1","bayplan":"0.1.0"}', "", id="version for programs"
    ),
    pytest.param(["--fast"], 1, "", "Error: unknown flag: --fast", id="after a flag error comes the usage"),
    pytest.param(
        ["x"], 1, "", 'Error: "bayplan run" does not take any arguments, got ["x"]', id="an argument"
    ),
    pytest.param(
        ["--logging-format=xml"],
        1,
        "",
        'format: Invalid value: "xml": Unsupported log format',
        id="an unknown form of logs",
    ),
    pytest.param(
        ["--logging-format=json", "--vmodule=a=1"],
        1,
        "",
        "vmodule: Forbidden: Only supported for text log format",
        id="vmodule with JSON",
    ),
    pytest.param(
        ["--log-json-split-stream"],
        1,
        "",
        "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
        id="an alpha option of logs",
    ),
]


@pytest.mark.parametrize(("arguments", "status", "out", "last_error"), ENDS)
def test_how_it_ends_before_it_begins(
    arguments: list[str], status: int, out: str, last_error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == status
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:1] == ([out] if out else [])
    assert printed.err.splitlines()[-1:] == ([last_error] if last_error else [])


def test_usage_comes_before_a_flag_error_but_not_before_others(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--fast"])
    assert capsys.readouterr().err.startswith("Usage: bayplan run [flags]")
    main(["run", "x"])
    assert capsys.readouterr().err.count("\n") == 1
