"""A short text that changes when the definition of a processor changes.

Problem: two versions of an application are compared processor by processor. The operations are plain data,
but they hold the user's functions and classes, and Python cannot decide whether two functions do the same.

Design: a value becomes a sequence of plain parts, which is hashed. A data class contributes its fields; a
function its compiled code with constants and names, its defaults, its closure, and whatever it uses of the
user's own modules: helpers, constants, classes. Line numbers, comments and file names do not count. Objects
of installed packages count by name only: another version of a package is another environment, not another
application.

Invariants:

1. Equal definitions have equal fingerprints, in every process of the same Python version.
2. Nothing is executed, and the user's iterables are not read.

Called by the command line and by runs, which record versions of an application's graph.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from drivetrain.code.installed_code import is_installed

_DIGITS: Final = 16
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_EXTENSIONS: Final = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_GENERATED: Final = "<string>"
"""The file name in the code of methods that `dataclass` generates."""
_NO_DEFINITION: Final = frozenset(
    {"__dict__", "__weakref__", "__module__", "__qualname__", "__annotations__", "__firstlineno__"}
    | {"__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"}
    | {"__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__annotations_cache__"}
    | {"__annotate_func__"}
)
"""Members that Python adds to a class, or derives from other members."""


def fingerprint(value: object) -> str:
    """Return 16 hexadecimal digits that identify the definition of `value`.

    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    return _Digests().of(value)


class _Digests:
    """Computes the digests of a value and of all its parts, each once."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._kept: list[object] = []  # keeps objects alive, so that Python does not reuse their ids

    def of(self, value: object) -> str:
        if isinstance(value, enum.Enum):
            return _hashed("enum", [type(value).__qualname__, value.name, repr(value.value)])
        if isinstance(value, _PLAIN):
            return _hashed(type(value).__name__, [repr(value)])
        if id(value) not in self._known:
            self._kept.append(value)
            self._known[id(value)] = "itself"  # for a value that contains itself
            self._known[id(value)] = self._of_object(value)
        return self._known[id(value)]

    def _of_object(self, value: object) -> str:
        match value:
            case list() | tuple():
                return self._all("sequence", value)
            case set() | frozenset():
                return _hashed("set", sorted(self.of(member) for member in value))
            case Mapping():
                return _hashed("mapping", sorted(self._all("item", item) for item in value.items()))
            case types.CodeType():
                return self._of_code(value)
            case types.FunctionType():
                return self._of_function(value)
            case types.MethodType():
                return self._all("method", (value.__func__, value.__self__))
            case functools.partial():
                return self._all("partial", (value.func, value.args, value.keywords))
            case staticmethod() | classmethod():
                return self._all(type(value).__name__, (value.__func__,))
            case property():
                return self._all("property", (value.fget,))
            case type():
                return self._of_class(value)
            case types.ModuleType():
                return _hashed("module", [value.__name__])
            case _:
                return self._of_instance(value)

    def _all(self, kind: str, values: Iterable[object]) -> str:
        return _hashed(kind, [self.of(value) for value in values])

    def _of_function(self, fn: types.FunctionType) -> str:
        if not _is_users(fn.__module__):
            return _hashed("installed function", [_name(fn)])
        enclosed = [cell.cell_contents for cell in fn.__closure__ or () if _is_filled(cell)]
        used = {name: fn.__globals__[name] for name in _names_in(fn.__code__) if name in fn.__globals__}
        return self._all("function", (fn.__code__, fn.__defaults__, fn.__kwdefaults__, enclosed, used))

    def _of_code(self, code: types.CodeType) -> str:
        parameters = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self._all("code", (code.co_code, parameters, names, code.co_consts))

    def _of_class(self, given: type) -> str:
        if not _is_users(given.__module__):
            return _hashed("installed class", [_name(given)])
        members = {
            name: value
            for name, value in vars(given).items()
            if name not in _NO_DEFINITION and _is_defined(value)
        }
        fields = {name: str(kind) for name, kind in inspect.get_annotations(given).items()}
        return self._all("class", (given.__qualname__, given.__bases__, members, fields))

    def _of_instance(self, value: object) -> str:
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self._all("instance", (type(value), fields))
        if isinstance(value, Iterator):
            return _hashed("iterator", [_name(type(value))])
        if _is_users(type(value).__module__):
            return self._all("instance", (type(value), dict(getattr(value, "__dict__", {}))))
        shown = "" if type(value).__repr__ is object.__repr__ else repr(value)
        return _hashed("instance", [_name(type(value)), "" if " at 0x" in shown else shown])


def _hashed(kind: str, parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    for part in (kind, *parts):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def _is_defined(member: object) -> bool:
    """Whether the user defined a member of a class, rather than `dataclass` generating it."""
    if isinstance(member, types.MemberDescriptorType | types.GetSetDescriptorType):
        return False
    return not (isinstance(member, types.FunctionType) and member.__code__.co_filename == _GENERATED)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if there is nothing
    except ValueError:
        return False
    return True


def _names_in(code: types.CodeType) -> list[str]:
    """The global names that a function and its nested functions may use."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_names_in(constant)))
    return list(found)


def _name(given: Callable[..., Any] | type) -> str:
    return f"{given.__module__}.{getattr(given, '__qualname__', '?')}"


@functools.cache
def _is_users(module: str | None) -> bool:
    """Whether a module belongs to the user's application: it is neither installed nor part of Python."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None:
        return module == "__main__"
    return not is_installed(file) and not file.endswith(_EXTENSIONS)
