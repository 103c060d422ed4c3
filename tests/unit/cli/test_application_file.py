"""Loading an application file: what is found, and what is said when it is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from drivetrain.code.application_file import MODULE_PREFIX, ApplicationFileError, load_application
from drivetrain.errors import ConfigError, GraphError

HEAD = "from drivetrain.api import Application, sinks, sources\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def write(content: str, name: str = "app.py") -> str:
        file = tmp_path / name
        file.write_text(HEAD + content)
        return str(file)

    return write


def error_of(target: str) -> ApplicationFileError:
    with pytest.raises(ApplicationFileError) as caught:
        load_application(target, {})
    return caught.value


def test_the_one_application_of_a_file_is_found_whatever_it_is_called(write) -> None:
    assert load_application(write("my_job = Application('a')\nalias = my_job"), {}).name == "a"


def test_a_file_that_changed_within_a_second_is_loaded_as_it_is_now(
    write, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python keeps bytecode for a size and a second: here both stay.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for name in ("a", "b"):
        file = write(f"app = Application('{name}')")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load_application(file, {}).name == name


def test_file_and_name_choose_one_of_several(write) -> None:
    file = write("one = Application('a')\ntwo = Application('b')")
    assert load_application(f"{file}:two", {}).name == "b"
    error = error_of(file)
    assert error.got == "one, two"
    assert f"{file}:one" in str(error.remedy)


def test_function_that_returns_an_application_is_called(write) -> None:
    assert load_application(write("def make(): return Application('made')") + ":make", {}).name == "made"


def test_function_build_fills_the_application_it_is_given(write) -> None:
    file = write(
        "def build(app):\n    app.read(sources.text('/x'), name='lines').sink(sinks.none())", "my job.py"
    )
    application = load_application(file, {})
    assert application.name == "my_job"
    assert "lines" in application.graph().nodes


def test_settings_of_the_application_take_their_values_from_set(write) -> None:
    file = write("app = Application('a')\nrows = app.setting('rows', default=1)")
    assert load_application(file, {"rows": "5", "spark.master": "local[1]"}).settings["rows"].value == 5


def test_name_that_is_no_setting_and_no_key_is_refused(write) -> None:
    file = write("app = Application('a')\napp.setting('rows', default=1)")
    with pytest.raises(ConfigError) as caught:
        load_application(file, {"row": "5"})
    assert 'did you mean "rows"?' in str(caught.value.remedy)


def test_file_without_an_application_says_what_to_add(write) -> None:
    error = error_of(write("x = 1"))
    assert "no application" in error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nope", "app = Application('a')", 'nothing called "nope"'),
        ("x", "x = 5", "is not an application"),
        ("make", "def make(): return 5", "is not an application"),
        ("make", "def make(a, b): pass", "more than one argument"),
    ],
)
def test_name_that_is_not_an_application_is_refused(write, name: str, content: str, says: str) -> None:
    assert says in error_of(f"{write(content)}:{name}").what


def test_missing_file_suggests_the_nearest_file_of_its_directory(write) -> None:
    file = write("app = Application('a')", "flights.py")
    error = error_of(file.replace("flights", "flight"))
    assert "no such file" in error.what
    assert "flights.py" in str(error.remedy)


def test_directory_is_not_a_file(tmp_path: Path) -> None:
    assert "directory" in error_of(str(tmp_path)).what


def test_file_of_another_kind_is_refused(write) -> None:
    assert "not a Python file" in error_of(write("", "app.txt")).what


def test_exception_shows_the_users_own_frames_only(write) -> None:
    file = write("import json\ndef load():\n    return json.loads('{')\nload()\n")
    error = error_of(file)
    assert error.user_traceback is not None
    assert "in load" in error.user_traceback
    assert "JSONDecodeError" in error.user_traceback
    assert "json/decoder.py" not in error.user_traceback
    assert "application_file.py" not in error.user_traceback
    assert "importlib" not in error.user_traceback


def test_exception_in_a_neighbour_module_keeps_its_frame(write) -> None:
    write("raise RuntimeError('from the neighbour')", "my_neighbour.py")
    error = error_of(write("import my_neighbour"))
    assert "my_neighbour.py" in str(error.user_traceback)
    assert "frozen importlib" not in str(error.user_traceback)


def test_syntax_error_shows_the_line(write) -> None:
    error = error_of(write("app = = 5"))
    assert "SyntaxError" in str(error.user_traceback)
    assert "app = = 5" in str(error.user_traceback)


def test_exception_in_the_building_function_shows_the_users_frames(write) -> None:
    error = error_of(write("def build():\n    return 1 / 0"))
    assert "ZeroDivisionError" in str(error.user_traceback)
    assert "application_file.py" not in str(error.user_traceback)


def test_file_that_ends_the_program_is_an_error(write) -> None:
    assert "sys.exit(3)" in str(error_of(write("import sys\nsys.exit(3)")).got)


def test_error_of_the_graph_passes_as_it_is(write) -> None:
    with pytest.raises(GraphError):
        load_application(write("app = Application('no good name')"), {})


def test_module_has_a_name_of_its_own_and_can_import_its_neighbours(write) -> None:
    write("VALUE = 7", "neighbour_of_app.py")
    file = write("from neighbour_of_app import VALUE\napp = Application(f'a{VALUE}')", "json.py")
    assert load_application(file, {}).name == "a7"
    assert f"{MODULE_PREFIX}json" in sys.modules
    assert sys.modules["json"].__name__ == "json"
    assert str(Path(file).parent) in os.environ["PYTHONPATH"].split(os.pathsep), "workers import them too"
