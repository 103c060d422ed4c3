"""Precedence, suggestions and the place that an error names."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.config import ALL_KEYS, Config, Key, environment_name, integer
from drivetrain.config.catalog import actor, run, spark
from drivetrain.config.catalog.collection import collect_keys
from drivetrain.config.toml_file import read_toml
from drivetrain.errors import ConfigError

TOML = """\
# a comment
[spark]
driver-memory = "3 GiB"
shuffle-partitions = 8   # as many as cores

[spark.conf]
"spark.sql.ansi.enabled" = true
spark.locality.wait = "0s"

[actor.ask]
timeout = "7 s"
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "drivetrain.toml"
    path.write_text(TOML)
    return path


def error_of(toml: str | None, tmp_path: Path, environ: dict[str, str], sets: dict[str, str]) -> ConfigError:
    path = None
    if toml is not None:
        path = tmp_path / "drivetrain.toml"
        path.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        Config.load(path, environ, sets)
    return caught.value


def test_every_key_has_its_default_when_nothing_is_written() -> None:
    config = Config.load()
    assert config == Config()
    assert {setting.key.name: setting.place for setting in config} == dict.fromkeys(ALL_KEYS, "default")


def test_stated_defaults_of_the_protocols_are_the_published_ones() -> None:
    config = Config()
    assert config[actor.ASK_TIMEOUT] == 100_000
    assert config[actor.LOOKUP_TIMEOUT] == 10_000
    assert config[actor.FRAME_LIMIT] == 10_485_760
    assert config[actor.THRESHOLD] == 12.0
    assert config[actor.REAPER_INTERVAL] == 200
    assert config[actor.PURGE_LIMIT] == 1000


def test_set_wins_over_environment_over_file_over_default(toml: Path) -> None:
    name, variable = spark.DRIVER_MEMORY.name, environment_name(spark.DRIVER_MEMORY.name)
    assert Config.load()[spark.DRIVER_MEMORY] == 2 * 2**30
    assert Config.load(toml)[spark.DRIVER_MEMORY] == 3 * 2**30
    assert Config.load(toml, {variable: "4 GiB"})[spark.DRIVER_MEMORY] == 4 * 2**30
    assert Config.load(toml, {variable: "4 GiB"}, {name: "5 GiB"})[spark.DRIVER_MEMORY] == 5 * 2**30


def test_table_entries_of_all_places_are_merged_and_the_stronger_place_wins_per_entry(toml: Path) -> None:
    config = Config.load(
        toml,
        {"DRIVETRAIN_SPARK_CONF": '{"spark.locality.wait": "1s", "spark.a": 1}'},
        {"spark.conf.spark.a": "2"},
    )
    assert config[spark.CONF] == {
        "spark.sql.ansi.enabled": "true",
        "spark.locality.wait": "1s",
        "spark.a": "2",
    }


def test_each_setting_tells_where_it_came_from(toml: Path) -> None:
    config = Config.load(toml, {"DRIVETRAIN_STATE_DIR": "/x"}, {"run.max-batch-rows": "5"})
    places = {setting.key.name: setting.place for setting in config}
    assert places["actor.ask.timeout"] == f"{toml}:11"
    assert places["spark.shuffle-partitions"] == f"{toml}:4"
    assert places["state.dir"] == "environment variable DRIVETRAIN_STATE_DIR"
    assert places["run.max-batch-rows"] == "--set run.max-batch-rows"
    assert config[run.STATE_DIR] == "/x"


@pytest.mark.parametrize(
    ("toml", "environ", "sets", "where", "meant"),
    [
        ("\n[spark]\ndriver-memmory = '1 GiB'\n", {}, {}, "drivetrain.toml:3", "spark.driver-memory"),
        ("spark = { mastr = 'x' }\n", {}, {}, "drivetrain.toml:1", "spark.master"),
        (None, {"DRIVETRAIN_STATE_DIRR": "x"}, {}, "DRIVETRAIN_STATE_DIRR", "DRIVETRAIN_STATE_DIR"),
        (None, {}, {"actor.ask.timeot": "1 s"}, "--set actor.ask.timeot", "actor.ask.timeout"),
        (None, {}, {"driver-memory": "1 GiB"}, "--set driver-memory", "spark.driver-memory"),
    ],
)
def test_unknown_key_is_refused_with_its_place_and_the_nearest_key(
    tmp_path: Path, toml: str | None, environ: dict[str, str], sets: dict[str, str], where: str, meant: str
) -> None:
    error = error_of(toml, tmp_path, environ, sets)
    assert where in str(error.where)
    assert f'did you mean "{meant}"?' in str(error.remedy)


@pytest.mark.parametrize(
    ("toml", "environ", "sets", "where", "got"),
    [
        ("[actor.ask]\n\ntimeout = 100\n", {}, {}, "drivetrain.toml:3", "100"),
        ("actor.ask.timeout = 'soon'\n", {}, {}, "drivetrain.toml:1", "'soon'"),
        ('[actor]\n"ask".timeout = "soon"\n', {}, {}, "drivetrain.toml:2", "'soon'"),
        ("[actor]\nask = { timeout = 'soon' }\n", {}, {}, "drivetrain.toml:2", "'soon'"),
        (None, {"DRIVETRAIN_ACTOR_ASK_TIMEOUT": "1"}, {}, "DRIVETRAIN_ACTOR_ASK_TIMEOUT", "'1'"),
        (None, {}, {"actor.ask.timeout": "0 s"}, "--set actor.ask.timeout", "'0 s'"),
    ],
)
def test_wrong_value_names_key_place_expected_and_got(
    tmp_path: Path, toml: str | None, environ: dict[str, str], sets: dict[str, str], where: str, got: str
) -> None:
    error = error_of(toml, tmp_path, environ, sets)
    assert where in str(error.where)
    assert '"actor.ask.timeout"' in error.what
    assert "a duration with a unit" in str(error.expected)
    assert error.got == got


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[spark\n", "not valid TOML"), (b"\xff\xfe", "not UTF-8"), (None, "does not exist")],
)
def test_unreadable_file_is_a_configuration_error(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "drivetrain.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        Config.load(path)
    assert caught.value.remedy


def test_directory_given_as_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.load(tmp_path)


def test_environment_variables_of_others_are_left_alone() -> None:
    assert (
        Config.load(
            None, {"PATH": "/bin", "SPARK_HOME": "/x", "DRIVETRAIN_CONFIG": "f.toml", "DRIVETRAIN_SEEDS": "7"}
        )
        == Config()
    )


def test_secrets_for_spark_are_kept_and_never_shown() -> None:
    config = Config.load(sets={"spark.conf.fs.s3a.secret.key": "hush", "spark.conf.spark.a": "1"})
    assert config[spark.CONF]["fs.s3a.secret.key"] == "hush"
    shown = next(setting.shown for setting in config if setting.key is spark.CONF)
    assert shown == '{"fs.s3a.secret.key": "***", "spark.a": "1"}'
    assert "hush" not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


def test_configuration_survives_the_way_to_another_process(toml: Path) -> None:
    config = Config.load(toml, {}, {"spark.conf.spark.a": "2"})
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert hash(copy) == hash(config)
    assert [setting.place for setting in copy] == [setting.place for setting in config]
    assert copy != Config()


def test_catalog_refuses_keys_that_collide() -> None:
    import types

    def module(*keys: Key[int]) -> types.ModuleType:
        topic = types.ModuleType("topic")
        for number, key in enumerate(keys):
            setattr(topic, f"KEY_{number}", key)
        return topic

    def key(name: str) -> Key[int]:
        return Key(name, integer(), 1, "doc")

    for one, other in [("a.b", "a.b"), ("a.b", "a-b"), ("a.b", "a.b.c")]:
        with pytest.raises(ValueError, match="collides"):
            collect_keys(module(key(one)), module(key(other)))


@pytest.mark.parametrize(("name", "default"), [("Spark.x", 1), ("a..b", 1), ("a.b", "x")])
def test_key_with_a_bad_name_or_default_is_refused(name: str, default: object) -> None:
    with pytest.raises(ValueError):
        Key(name, integer(), default, "doc")


def test_guide_lists_every_key_with_its_default_and_environment_variable() -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/configuration.md").read_text()
    for key in ALL_KEYS.values():
        row = next((line for line in guide.splitlines() if line.startswith(f"| `{key.name}` |")), "")
        assert f"`{key.parse.show(key.default_value)}`" in row, f"{key.name} is not in the guide as it is"
        assert key.doc in row, f"the guide says something else of {key.name}"


@st.composite
def toml_files(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A file with tables, comments and blank lines, and the line on which each name stands."""
    lines: list[str] = []
    where: dict[str, int] = {}
    word = st.from_regex(r"[a-z]{1,4}(-[a-z]{1,3})?", fullmatch=True)
    for table in draw(st.lists(word, unique=True, max_size=4)):
        lines += draw(st.lists(st.sampled_from(["", "# a = 1", "  # [b]"]), max_size=2))
        lines.append(f"  [ {table} ] # x = 1" if draw(st.booleans()) else f"[{table}]")
        for name in draw(st.lists(word, unique=True, max_size=4)):
            lines += draw(st.lists(st.sampled_from(["", "# c = 1"]), max_size=1))
            written = f'"{name}"' if draw(st.booleans()) else name
            value = draw(st.sampled_from(["1", "'x = 2'", "true", "[1, 2]"]))
            lines.append(f"{written} = {value} # y = 2")
            where[f"{table}.{name}"] = len(lines)
    return "\n".join(lines), where


@given(toml_files())
def test_every_entry_of_a_toml_file_is_told_with_its_line(written: tuple[str, dict[str, int]]) -> None:
    content, where = written
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.toml")
        path.write_text(content)
        assert {entry.name: entry.line for entry in read_toml(path, frozenset())} == where
