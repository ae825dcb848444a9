"""Logs: what is logged at which verbosity, and its format."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from bayplan.process.logs import LogSettings, change_verbosity, configure, log, verbosity

_log = logging.getLogger("bayplan.somewhere")


def everything() -> None:
    """Logs a message at every level."""
    _log.error("error")
    _log.warning("warning")
    _log.info("info")
    _log.log(verbosity(2), "two")
    _log.log(verbosity(3), "three")
    _log.debug("debug")
    _log.log(verbosity(9), "nine")


def logged(settings: LogSettings) -> list[str]:
    """The messages that are logged."""
    stream = io.StringIO()
    configure(settings, stream)
    everything()
    return [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()]


LOGGED = [
    pytest.param(LogSettings(), ["error", "warning", "info"], id="0 is what every user should see"),
    pytest.param(LogSettings(verbosity=2), ["error", "warning", "info", "two"], id="2"),
    pytest.param(
        LogSettings(verbosity=4),
        ["error", "warning", "info", "two", "three", "debug"],
        id="4 is for debugging",
    ),
    pytest.param(
        LogSettings(verbosity=10),
        ["error", "warning", "info", "two", "three", "debug", "nine"],
        id="10 is everything",
    ),
    pytest.param(
        LogSettings(modules=["test_l*=3"]),
        ["error", "warning", "info", "two", "three"],
        id="this file more than others",
    ),
    pytest.param(
        LogSettings(verbosity=9, modules=["test_logs=0"]),
        ["error", "warning", "info"],
        id="this file less than others",
    ),
    pytest.param(LogSettings(modules=["queue=9"]), ["error", "warning", "info"], id="another file"),
]


@pytest.mark.parametrize(("settings", "messages"), LOGGED)
def test_what_is_reported(settings: LogSettings, messages: list[str]) -> None:
    assert logged(settings) == messages


def test_a_rule_for_one_file_costs_the_others_nothing() -> None:
    """Their messages are not even made."""
    configure(LogSettings(modules=["process=3"]), io.StringIO())
    assert logging.getLogger("bayplan.process.process").isEnabledFor(verbosity(3))
    assert not logging.getLogger("bayplan.scheduler.recorder").isEnabledFor(verbosity(1))


def test_a_rule_for_a_plugin_reaches_the_logger_that_plugins_share() -> None:
    configure(LogSettings(modules=["node_name=3"]), io.StringIO())
    assert logging.getLogger("bayplan.plugin").isEnabledFor(verbosity(3))


def test_verbosity_can_be_changed_while_running() -> None:
    stream = io.StringIO()
    configure(LogSettings(), stream)
    change_verbosity(9)
    everything()
    change_verbosity(0)
    everything()
    assert len(stream.getvalue().splitlines()) == 7 + 3


def line(message: str, level: int = logging.INFO, **facts: object) -> str:
    stream = io.StringIO()
    configure(LogSettings(verbosity=10), stream)
    log(_log, level, message, **facts)
    return stream.getvalue().rstrip("\n")


TEXTS = [
    pytest.param(logging.INFO, {}, "I", '"it is"', id="a message"),
    pytest.param(verbosity(5), {}, "I", '"it is"', id="verbose ones are information, too"),
    pytest.param(logging.WARNING, {}, "W", '"it is"', id="a warning"),
    pytest.param(logging.ERROR, {"err": OSError('no "x"')}, "E", r'"it is" err="no \"x\""', id="an error"),
    pytest.param(
        logging.INFO,
        {"pod": "a/b", "n": 3, "ok": True},
        "I",
        '"it is" pod="a/b" n=3 ok=true',
        id="facts",
    ),
    pytest.param(logging.INFO, {"config": "a\nb\n"}, "I", '"it is" config=<\n\ta\n\tb\n >', id="many lines"),
]


@pytest.mark.parametrize(("level", "facts", "letter", "rest"), TEXTS)
def test_a_line_of_klog(level: int, facts: dict[str, object], letter: str, rest: str) -> None:
    head = rf"{letter}\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} +\d+ test_logs\.py:\d+\] "
    assert re.fullmatch(head + re.escape(rest), line("it is", level, **facts))


def object_of(act: object) -> dict[str, object]:
    stream = io.StringIO()
    configure(LogSettings("json", verbosity=10), stream)
    assert callable(act)
    act()
    found = json.loads(stream.getvalue())
    assert isinstance(found, dict)
    return found


def test_a_line_of_json() -> None:
    """ts is in milliseconds; an error has err and no v."""
    logged = object_of(lambda: log(_log, verbosity(2), "it is", pod="a/b"))
    assert {key: logged[key] for key in ("msg", "v", "pod")} == {"msg": "it is", "v": 2, "pod": "a/b"}
    assert re.fullmatch(r"process/test_logs\.py:\d+", str(logged["caller"]))
    assert float(str(logged["ts"])) > 1e12
    failed = object_of(lambda: log(_log, logging.ERROR, "command failed", err=OSError("reason")))
    assert failed["err"] == "reason"
    assert "v" not in failed


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_reported(form: str) -> None:
    stream = io.StringIO()
    configure(LogSettings(form), stream)
    try:
        raise ValueError("deep inside")
    except ValueError:
        _log.exception("binding of pod %s broke", "a/b")
    text = stream.getvalue()
    assert "binding of pod a/b broke" in text
    assert "Traceback" in text
    assert "deep inside" in text
