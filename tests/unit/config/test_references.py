"""References to secrets: resolved late, never told, and known where they are written out."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.api.graphs.literal_secrets import (
    SecretWrittenOutError,
    literal_secrets,
    refuse_literal_secrets,
    settings_with_literal_secrets,
)
from drivetrain.api.settings import given_settings
from drivetrain.config import Config
from drivetrain.config.references import (
    PasswordInUriError,
    ScrubbingFormatter,
    Secret,
    SecretNotFoundError,
    is_hidden,
    is_literal_secret,
    resolved,
    resolved_options,
    scrub,
    scrubbed,
    set_apart,
    shown,
    without_password,
)
from drivetrain.errors import ConfigError, OperatorError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.run_directory import RunDirectory

PLANTED = 'planted-"s3cret"\\x'
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The secret, in the variable PLANTED and in a file; returns the reference to the file."""
    monkeypatch.setenv("PLANTED", PLANTED)
    (tmp_path / "planted").write_text(f"{PLANTED}\n")
    return f"${{file:{tmp_path}/planted}}"


def test_a_reference_is_resolved_where_it_stands(planted: str) -> None:
    assert resolved("a ${PLANTED} b ${PLANTED}") == f"a {PLANTED} b {PLANTED}"
    assert resolved(planted) == PLANTED
    assert resolved("$PLANTED ${env:X} ${hadoop.tmp.dir} {PLANTED}") == (
        "$PLANTED ${env:X} ${hadoop.tmp.dir} {PLANTED}"
    )


def test_what_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SecretNotFoundError, match="names the environment variable NOT_SET_HERE") as raised:
        resolved("${NOT_SET_HERE}", "the sink")
    assert raised.value.exit_code == 2
    assert "workers" in str(raised.value)
    with pytest.raises(SecretNotFoundError, match="the file that"):
        resolved(f"${{file:{tmp_path}/nothing}}")


def test_in_a_login_line_a_secret_is_quoted(planted: str) -> None:
    options = {"sasl.jaas.config": JAAS.format(planted), "ssl.key.password": "${PLANTED}", "retries": 3}
    assert resolved_options(options, "t") == {
        "sasl.jaas.config": JAAS.format('planted-\\"s3cret\\"\\\\x'),
        "ssl.key.password": PLANTED,
        "retries": "3",
    }


def test_what_was_resolved_is_taken_out_of_texts_errors_and_logs(planted: str) -> None:
    resolved(planted)
    resolved_options({"sasl.jaas.config": JAAS.format("${PLANTED}")}, "t")
    assert scrubbed(f"<{PLANTED}>") == "<***>"
    assert "s3cret" not in scrubbed(JAAS.format('planted-\\"s3cret\\"\\\\x'))
    error = OperatorError("x", operator="o", message=PLANTED, user_traceback=f"at {PLANTED}")
    error.__cause__ = ValueError(f"no {PLANTED}")
    scrub(error)
    assert PLANTED not in repr(vars(error)) + str(error) + str(error.__cause__)
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(ScrubbingFormatter("%(message)s"))
    raised = (ValueError, ValueError(PLANTED), None)
    handler.handle(logging.LogRecord("x", logging.INFO, "f", 1, "it is %s", (PLANTED,), raised))
    assert "it is ***" in lines.getvalue()
    assert PLANTED not in lines.getvalue()


@pytest.mark.parametrize(
    ("name", "value", "is_out"),
    [
        ("sasl.jaas.config", JAAS.format("hush"), True),
        ("sasl.jaas.config", JAAS.format("${KAFKA}"), False),
        ("sasl.jaas.config", "${KAFKA_LOGIN}", False),
        ("sasl.jaas.config", 'x.Krb5LoginModule required useKeyTab=true keyTab="/k";', False),
        ("sasl.jaas.config", 'x.OAuthBearerLoginModule required clientSecret="hush";', True),
        ("ssl.key.password", "hush", True),
        ("ssl.key.password", "", False),
        ("spark.hadoop.fs.s3a.secret.key", "hush", True),
        ("spark.hadoop.fs.s3a.access.key", "${KEY}", False),
        ("spark.authenticate.secret", "hush", True),
        ("spark.ssl.keyStorePassword", "hush", True),
        ("fs.azure.account.key.me.blob.core.windows.net", "hush", True),
        ("fs.s3a.aws.credentials.provider", "org.apache.Some", False),
        ("sasl.oauthbearer.token.endpoint.url", "https://x", False),
        ("ssl.truststore.location", "/ca", False),
        ("spark.sql.shuffle.partitions", "2", False),
    ],
)
def test_a_secret_that_is_written_out_is_known_by_its_option(name: str, value: str, is_out: bool) -> None:
    assert is_literal_secret(name, value) is is_out
    assert not is_out or is_hidden(name)


def test_references_are_shown_and_secrets_are_not() -> None:
    assert shown("ssl.key.password", "hush") == "***"
    assert shown("ssl.key.password", "${KEY}") == "${KEY}"
    assert shown("retries", "3") == "3"


def test_words_stand_for_references_where_a_parser_reads() -> None:
    text, references = set_apart("postgresql://u:${file:/run/x}@h/${DB}")
    assert "/run" not in text
    for word, reference in references.items():
        text = text.replace(word, reference)
    assert text == "postgresql://u:${file:/run/x}@h/${DB}"


# -- settings -------------------------------------------------------------------------------------------


def application(given: dict[str, str]) -> tuple[Application, Secret]:
    with given_settings(given):
        app = Application("app")
        app.setting("input", "in")
        return app, app.setting("password", secret=True, doc="of the database")


def test_a_secret_setting_is_a_reference_until_it_is_asked(planted: str) -> None:
    app, secret = application({"password": planted})
    assert secret == planted
    assert f"{secret}" == planted
    assert pickle.loads(pickle.dumps(secret)).value() == PLANTED
    assert app.naming_settings == {"input": "in"}
    with pytest.raises(ConfigError, match="'password' is required: of the database"):
        application({})


def test_a_secret_setting_that_is_written_out_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="'password' is a literal secret") as raised:
        application({"password": "hush-hush"})
    assert "hush-hush" not in str(raised.value)
    assert "${ITS_NAME}" in str(raised.value)
    app = Application("app")
    with pytest.raises(ConfigError):
        app.setting("other", "hush-hush", secret=True)
    assert app.setting("none", None, secret=True) is None
    with given_settings({"pasword": "hush-hush"}), pytest.raises(ConfigError) as raised:
        Application("app").setting("password", secret=True)
    assert "--set pasword" in str(raised.value)
    assert "hush-hush" not in str(raised.value)


def test_another_secret_is_the_same_application(planted: str, tmp_path: Path) -> None:
    ids = {
        RunDirectory(str(tmp_path), "app", application({"password": reference})[0].naming_settings).app_id
        for reference in (planted, "${PLANTED}", "${OTHER}")
    }
    assert len(ids) == 1


# -- what would leave the machine -----------------------------------------------------------------------


def test_secrets_that_are_written_out_are_found_and_named_with_their_places() -> None:
    app = Application("app")
    options = {"sasl.jaas.config": JAAS.format("hush-hush"), "security.protocol": "SASL_SSL"}
    rows = app.read(sources.kafka("h:9", "t", options=options), name="in")
    rows.sink(sinks.kafka("h:9", "u", value="value", options={"ssl.key.password": "hush-hush"}), name="out")
    rows.sink(sinks.kafka("h:9", "v", value="value", options={"ssl.key.password": "${KEY}"}), name="fine")
    config = Config.load(None, {}, {"spark.conf.spark.authenticate.secret": "hush-hush"})
    found = literal_secrets(app.graph(), config)
    assert [place.partition(" (")[0] for place in found] == [
        "spark.conf.spark.authenticate.secret",
        "sasl.jaas.config of in",
        "ssl.key.password of out",
    ]
    with pytest.raises(SecretWrittenOutError) as raised:
        refuse_literal_secrets(found)
    assert raised.value.exit_code == 2
    assert "test_references.py" in str(raised.value)
    assert "hush-hush" not in str(raised.value)
    refuse_literal_secrets([])


def test_settings_that_look_like_secrets_are_asked_about() -> None:
    app = Application("app")
    given = {"db_password": "x", "password": "x", "token": "word", "api_token": "${T}", "input": "x"}
    with given_settings(given):
        for name in given:
            app.setting(name, secret=False if name == "password" else None)
    assert settings_with_literal_secrets(given, app.settings) == ["--set db_password"]


@pytest.mark.parametrize(
    "uri",
    ["s3a://key:planted-s3cret@bucket/x", "https://:planted-s3cret@host/x", "hdfs://u:${PLANTED}@h:1/a@b"],
)
def test_the_uri_of_a_file_system_has_no_password_in_it(uri: str) -> None:
    def refused(use: Callable[[], object]) -> None:
        with pytest.raises(PasswordInUriError) as raised:
            use()
        assert "planted" not in str(raised.value).lower()
        assert ":***@" in str(raised.value)
        assert "AWS_SECRET_ACCESS_KEY" in str(raised.value)

    refused(lambda: sources.text(uri))
    refused(lambda: sources.csv(uri, schema="n long"))
    refused(lambda: sources.parquet(uri))
    refused(lambda: sinks.parquet(uri))
    refused(lambda: sinks.csv("out/", together=uri))
    refused(lambda: Config.load(None, {}, {"state.dir": uri}))
    refused(lambda: locate(uri))


@pytest.mark.parametrize("path", ["s3://bucket/a:b@c", "hdfs://host:8020/a@b", "a:b@c", "s3://key@bucket/x"])
def test_other_uris_are_taken(path: str) -> None:
    assert without_password(path) == path
