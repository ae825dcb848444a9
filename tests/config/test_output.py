"""What is written is complete, and reads as the same configuration."""

from __future__ import annotations

from typing import Any

from bayplan.config import completed, default_config, parse_config, to_yaml

from .yaml_config import make_config, make_profile_config


def test_the_defaults_are_read_back_as_the_defaults() -> None:
    text = to_yaml(completed(default_config()))
    assert completed(parse_config(text)) == completed(default_config())


def test_arguments_that_no_profile_uses_are_left_out() -> None:
    config = make_profile_config({"multiPoint": ["-NodeAffinity"]}, {"NodeAffinity": {}, "Mine": {"a": 1}})
    result: Any = completed(config)
    names = [entry["name"] for entry in result["profiles"][0]["pluginConfig"]]
    assert names == sorted(names)
    assert {"NodeAffinity", "Mine"}.isdisjoint(names)


def test_numbers_are_written_as_short_as_they_were() -> None:
    for written in (5.5, 50, -1, 0.1):
        result: Any = completed(make_config(clientConnection={"qps": written}))
        assert result["clientConnection"]["qps"] == written
        assert type(result["clientConnection"]["qps"]) is type(written)


def test_a_missing_list_of_terms_stays_missing() -> None:
    """The one list of the API that is written also when it is not there."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for given, written in (({}, None), ({"nodeSelectorTerms": []}, [])):
        config = make_profile_config(args={"NodeAffinity": {"addedAffinity": {required: given}}})
        result: Any = completed(config)
        (args,) = [e["args"] for e in result["profiles"][0]["pluginConfig"] if e["name"] == "NodeAffinity"]
        assert args["addedAffinity"] == {required: {"nodeSelectorTerms": written}}


def test_a_percentage_of_zero_is_written() -> None:
    """For a profile it means something else than no percentage."""
    result: Any = completed(make_config(profiles=[{"percentageOfNodesToScore": 0}]))
    assert result["profiles"][0]["percentageOfNodesToScore"] == 0
