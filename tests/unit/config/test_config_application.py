"""An application's own settings beside the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.config import AppSettings, current_sets, duration_ms, given_sets, split_sets
from drivetrain.errors import ConfigError


def test_declared_setting_has_the_given_value_in_its_declared_type() -> None:
    settings = AppSettings()
    with given_sets({"input": "/data", "rows": "12", "fast": "yes", "out": "o", "gap": "2 s"}):
        assert settings.declare("input", type=str) == "/data"
        assert settings.declare("rows", default=5) == 12
        assert settings.declare("fast", default=False) is True
        assert settings.declare("out", default=Path("x")) == Path("o")
        assert settings.declare("gap", type=duration_ms(), default=1) == 2000
    assert settings.values == {"input": "/data", "rows": 12, "fast": True, "out": Path("o"), "gap": 2000}


def test_default_is_used_when_nothing_was_given_and_its_absence_is_an_error() -> None:
    settings = AppSettings()
    assert settings.declare("rows", default=5) == 5
    with pytest.raises(ConfigError, match="needs a value") as caught:
        settings.declare("input", doc="where the text is")
    assert caught.value.remedy == "add --set input=…"
    assert "where the text is" in caught.value.what


def test_wrong_value_names_the_setting_and_what_was_expected() -> None:
    with given_sets({"rows": "many"}), pytest.raises(ConfigError) as caught:
        AppSettings().declare("rows", default=5)
    assert caught.value.where == "--set rows"
    assert caught.value.expected == "a whole number"
    assert caught.value.got == "'many'"


def test_declaring_twice_or_over_a_key_of_the_catalog_is_refused() -> None:
    settings = AppSettings()
    settings.declare("rows", default=5)
    with pytest.raises(ConfigError, match="twice"):
        settings.declare("rows", default=5)
    with pytest.raises(ConfigError, match="has the name of a configuration key"):
        settings.declare("spark.conf.x", default="1")


def test_type_that_no_text_can_give_is_refused() -> None:
    with pytest.raises(ConfigError, match="a type that cannot be read"):
        AppSettings().declare("when", default=object())


def test_what_was_given_is_split_into_catalog_and_application() -> None:
    settings = AppSettings()
    settings.declare("input", default="x")
    catalog, own = split_sets(
        {"input": "/d", "spark.master": "local[1]", "spark.conf.spark.a": "1"}, settings.declared.values()
    )
    assert catalog == {"spark.master": "local[1]", "spark.conf.spark.a": "1"}
    assert own == {"input": "/d"}


@pytest.mark.parametrize(("given", "meant"), [("inptu", "input"), ("state.dirr", "state.dir")])
def test_unknown_name_suggests_the_nearest_of_both(given: str, meant: str) -> None:
    settings = AppSettings()
    settings.declare("input", default="x")
    with pytest.raises(ConfigError) as caught:
        split_sets({given: "1"}, settings.declared.values())
    assert f'did you mean "{meant}"?' in str(caught.value.remedy)


def test_what_was_given_is_gone_after_the_scope() -> None:
    with given_sets({"a": "1"}):
        assert current_sets() == {"a": "1"}
    assert current_sets() == {}
