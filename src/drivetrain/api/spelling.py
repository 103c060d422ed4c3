"""Unknown names: the error suggests what to write instead, also for the names used by PySpark and Flink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drivetrain.config.nearest import nearest


def unknown_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that `owner` does not have, with the most similar one that it has.

    >>> str(unknown_name("a shape", "circel", ["circle", "square"]))
    "a shape has no 'circel': did you mean 'circle'?"
    """
    near = nearest(name, sorted(known))
    hint = "" if near is None else f": did you mean {near!r}?"
    return AttributeError(f"{owner} has no {name!r}{hint}")


def other_word(owner: object, name: str, words: Mapping[str, str]) -> AttributeError:
    """The error for a method that `owner` does not have, with our name for it if it is known."""
    kind = type(owner).__name__
    return _other(kind, name, words, [known for known in dir(type(owner)) if not known.startswith("_")])


def names_of_module(module: str, known: Iterable[str], words: Mapping[str, str]) -> Callable[[str], Any]:
    """The function `__getattr__` of a module, which raises the error for a name that the module lacks."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module} has no {name!r}")
        raise _other(module, name, words, known)

    return refuse


def _other(owner: str, name: str, words: Mapping[str, str], known: Iterable[str]) -> AttributeError:
    if name in words:
        return AttributeError(f"{owner} has no {name!r}: write {words[name]}")
    return unknown_name(owner, name, known)
