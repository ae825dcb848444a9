"""Errors name where the problem is, as far as it is known."""

from __future__ import annotations

import copy
import pickle

import pytest

from bayplan.errors import (
    BayplanError,
    ConfigError,
    DecodeError,
    InputError,
    PluginError,
    QuantityError,
    SelectorError,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(InputError("it broke"), "it broke", id="the problem alone"),
        pytest.param(InputError("it broke", source="a.yaml"), "a.yaml: it broke", id="a file"),
        pytest.param(
            InputError("it broke", source="a.yaml", line=3), "a.yaml:3: it broke", id="a line of a file"
        ),
        pytest.param(InputError("it broke", line=3), "line 3: it broke", id="a line of no file"),
        pytest.param(
            QuantityError(
                '"1x" is not a quantity',
                source="cluster.yaml",
                line=12,
                object_key="Pod default/web",
                field="spec.containers[0].resources.requests[cpu]",
            ),
            "cluster.yaml:12: Pod default/web: spec.containers[0].resources.requests[cpu]: "
            '"1x" is not a quantity',
            id="everything",
        ),
    ],
)
def test_text(error: InputError, text: str) -> None:
    assert str(error) == text


def test_outer_callers_add_and_do_not_overrule() -> None:
    error = InputError("it broke", field="spec.x")
    error.at(field="spec", object_key="Pod a", line=7).at(source="f", line=1)
    assert str(error) == "f:7: Pod a: spec.x: it broke"


@pytest.mark.parametrize("kind", [QuantityError, SelectorError, DecodeError])
def test_mistakes_of_users_are_input_errors(kind: type[InputError]) -> None:
    assert issubclass(kind, InputError)
    assert issubclass(kind, BayplanError)


def test_a_plugin_error_names_the_plugin() -> None:
    error = PluginError("Fancy", "score 101 is out of range")
    assert error.plugin == "Fancy"
    assert str(error) == "plugin Fancy: score 101 is out of range"


@pytest.mark.parametrize(
    "error", [DecodeError("it broke", source="f", line=2), PluginError("Fancy", "no"), ConfigError("no")]
)
def test_errors_survive_pickling(error: BayplanError) -> None:
    """Workers of a test run or a pool hand them to each other."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(copy.copy(error)) == str(error)
