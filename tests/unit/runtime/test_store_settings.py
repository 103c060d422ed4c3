"""The section [s3]: what travels, what is shown, and what is no place."""

from __future__ import annotations

import pytest

from drivetrain.config import Config
from drivetrain.config.references import PasswordInUriError
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.locations import is_in_object_store, parts_of
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.objects.store_services import account_of


def test_without_the_section_the_environment_decides() -> None:
    assert StoreSettings.of(Config()) == StoreSettings()


def test_references_travel_as_they_are() -> None:
    sets = {"s3.secret-key": "${NOT_SET_HERE}", "s3.endpoint": "http://store:9000", "s3.timeout": "2 s"}
    found = StoreSettings.of(Config.load(None, {}, sets))
    assert found == StoreSettings(
        endpoint="http://store:9000",
        secret_key="${NOT_SET_HERE}",
        timeout_ms=2000,
    )


def test_a_secret_that_is_written_out_is_masked_and_reported() -> None:
    config = Config.load(None, {}, {"s3.secret-key": "literal", "s3.access-key": "${ID}"})
    shown = {setting.key.name: setting.shown for setting in config}
    assert (shown["s3.secret-key"], shown["s3.access-key"]) == ("***", "${ID}")
    assert shown["s3.session-token"] == "none"
    assert "literal" not in repr(config)
    assert config.literal_secrets() == [("s3.secret-key", "--set s3.secret-key")]


@pytest.mark.parametrize("key", ["gs.service-account-key", "gs.token", "abfs.account-key", "abfs.sas-token"])
def test_the_secrets_of_other_stores_are_masked_and_reported_too(key: str) -> None:
    config = Config.load(None, {}, {key: "literal"})
    assert {setting.key.name: setting.shown for setting in config}[key] == "***"
    assert config.literal_secrets() == [(key, f"--set {key}")]


def test_a_section_gives_its_own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "t")
    sets = {"gs.token": "${A_TOKEN}", "abfs.sas-token": "${A_TOKEN}", "abfs.account": "shop"}
    found = StoreSettings.of(Config.load(None, {}, sets))
    assert (found.gs_token, found.abfs_account) == ("${A_TOKEN}", "shop")
    assert found.secrets("gs") == {"bearer_token": "t"}
    assert found.secrets("abfs") == {"sas_key": "t"}
    assert found.secrets("s3") == {}
    hasty = found.impatient(0)
    assert (hasty.retry_ms, hasty.gs_retry_ms, hasty.abfs_retry_ms, hasty.hdfs_retry_ms) == (0, 0, 0, 0)


def test_a_place_in_azure_may_name_its_account() -> None:
    uri = "abfss://lake@shop.dfs.core.windows.net/a"
    assert is_in_object_store(uri)
    assert parts_of(uri) == ("lake@shop.dfs.core.windows.net", "a")
    settings = StoreSettings(abfs_account="own", abfs_endpoint="http://here")
    assert account_of(parts_of(uri)[0], StoreSettings()) == (
        "lake",
        "shop",
        "https://shop.blob.core.windows.net",
    )
    assert account_of(parts_of(uri)[0], settings) == ("lake", "shop", "http://here")
    assert account_of(parts_of("az://lake/a")[0], settings) == ("lake", "own", "http://here")


def test_a_place_is_a_bucket_and_a_name() -> None:
    assert parts_of("s3://lake") == ("lake", "")
    assert parts_of("s3a://lake/a%20b/c/") == ("lake", "a b/c")
    files, path = locate("s3://lake/a/")
    assert (path, objects_of(files) is None) == ("lake/a", False)
    assert objects_of(locate("/tmp")[0]) is None


@pytest.mark.parametrize(
    "uri",
    [
        "s3://",
        "s3:///a",
        "s3://lake/a?endpoint_override=x",
        "s3://me@lake/a",
        "gs://me@lake/a",
        "gs://",
        "abfs://@host/a",
        "abfs://lake@/a",
        "abfs://a@b@host/x",
        "abfs:///a",
    ],
)
def test_what_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(InputError, match="not a place"):
        locate(uri)


def test_a_password_in_a_place_is_refused() -> None:
    with pytest.raises(PasswordInUriError):
        locate("s3://me:secret@lake/a")
