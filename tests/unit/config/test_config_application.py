"""What --set gives is sorted into keys of the catalog and settings of the application."""

from __future__ import annotations

import pytest

from drivetrain.config import split_sets
from drivetrain.errors import ConfigError


def test_what_was_given_is_split_into_catalog_and_application() -> None:
    catalog, own = split_sets(
        {"input": "/d", "spark.master": "local[1]", "spark.conf.spark.a": "1"}, {"input", "output"}
    )
    assert catalog == {"spark.master": "local[1]", "spark.conf.spark.a": "1"}
    assert own == {"input": "/d"}


@pytest.mark.parametrize(("given", "meant"), [("inptu", "input"), ("state.dirr", "state.dir")])
def test_unknown_name_suggests_the_nearest_of_both(given: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_sets({given: "1"}, {"input", "output"})
    assert f'did you mean "{meant}"?' in str(caught.value.remedy)
    assert "input, output" in str(caught.value.expected)


def test_name_unlike_any_other_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError) as caught:
        split_sets({"zzz": "1"}, {"input"})
    assert caught.value.remedy == "check the spelling"


@pytest.mark.parametrize("name", ["spark.master", "spark.conf.x"])
def test_setting_of_an_application_may_not_hide_a_key(name: str) -> None:
    with pytest.raises(ConfigError, match="has the name of a configuration key"):
        split_sets({}, {name})
