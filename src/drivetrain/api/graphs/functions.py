"""From a user's Python function to a `Function` of the graph: its type, its parameters, its name.

An operator's output type comes from `returns=` or from the function's return annotation. Without either, the
graph is refused here, before anything runs, with the operator's line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from drivetrain.api.durations import milliseconds
from drivetrain.api.location import Location, caller
from drivetrain.api.operations import AsyncCalls, Function, OnError
from drivetrain.api.types import (
    MessageType,
    UnsupportedTypeError,
    element_annotation,
    message_type,
    returned_annotation,
)
from drivetrain.errors import GraphError, OperatorTypeError

_POLICIES = ("fail", "dead_letter")
_MOST_CALLS = 10_000
_MOST_RETRIES = 100


def name_of(fn: object) -> str:
    """The name of a function in plans and errors."""
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return "lambda" if name == "<lambda>" else str(name)


def named_after(kind: str, fn: object) -> str:
    """The name of a processor that runs `fn`, if that is a function with a name of its own."""
    return kind if not callable(fn) or name_of(fn) == "lambda" else f"{kind}-{name_of(fn)}"


def calls_of(
    fn: object, concurrency: int, timeout: str, retries: int, backoff: str, cache: str | None
) -> AsyncCalls:
    """The settings of calls of an asynchronous function; raises `GraphError` for invalid arguments."""
    by_call = getattr(type(fn), "__call__", None)  # noqa: B004 - of an object with `async def __call__`
    if not inspect.iscoroutinefunction(fn) and not inspect.iscoroutinefunction(by_call):
        raise GraphError(
            "not an asynchronous function",
            where=f"async_map ({caller()})",
            expected="a function that is defined with `async def`",
            got=name_of(fn),
            remedy="define it with `async def`, or use map",
        )
    for what, number, least, most in (
        ("concurrency", concurrency, 1, _MOST_CALLS),
        ("retries", retries, 0, _MOST_RETRIES),
    ):
        if type(number) is not int or not least <= number <= most:
            raise GraphError(
                f"cannot use this {what}",
                where=f"async_map ({caller()})",
                expected=f"a whole number from {least} to {most}",
                got=repr(number),
            )
    cache_ms = None if cache is None else milliseconds(cache, "cache")
    return AsyncCalls(
        concurrency, milliseconds(timeout, "timeout"), retries, milliseconds(backoff, "backoff"), cache_ms
    )


def function(
    operator: str,
    where: Location,
    fn: Callable[..., Any],
    returns: object | None,
    *,
    element: bool = False,
    on_error: OnError = "fail",
) -> Function:
    """The graph's record of `fn`; with `element`, the type of one yielded element, not of the iterable.

    Raises `OperatorTypeError` when the type is missing, or no column can have it.
    """
    if not callable(fn):
        raise GraphError(
            "not a function", where=f"{operator} ({where})", expected="a Python function", got=repr(fn)
        )
    if on_error not in _POLICIES:
        raise GraphError(
            "unknown error policy",
            where=f"{operator} ({where})",
            expected=" or ".join(_POLICIES),
            got=repr(on_error),
        )
    return Function(fn, output_type(operator, where, fn, returns, element=element), parameters(fn), on_error)


def output_type(
    operator: str, where: Location, fn: Callable[..., Any], returns: object | None, *, element: bool = False
) -> MessageType:
    """The message type that `fn` declares, or `returns` when given; raises `OperatorTypeError`."""
    label = f"{operator} ({where})"
    annotation = returns if returns is not None else returned_annotation(fn)
    example = "list[str]" if element else "str"
    if annotation is None or annotation is inspect.Signature.empty:
        raise OperatorTypeError(
            f"the return type of {name_of(fn)} is unknown",
            where=label,
            expected=f"a return annotation, such as `-> {example}`, or returns=str",
            got="a lambda, which cannot have annotations"
            if name_of(fn) == "lambda"
            else "no return annotation",
            remedy="columns have types: annotate the function, or pass returns=",
        )
    if element and returns is None:
        inner = element_annotation(annotation)
        if inner is None:
            raise OperatorTypeError(
                f"{name_of(fn)} must return an iterable",
                where=label,
                expected="a return annotation such as `-> list[str]` or `-> Iterator[Reading]`",
                got=f"`-> {_shown(annotation)}`",
                remedy="return a list, or make it a generator",
            )
        annotation = inner
    try:
        return message_type(annotation)
    except UnsupportedTypeError as error:
        raise OperatorTypeError(
            f"the return type of {name_of(fn)} has no column type",
            where=label,
            expected="a type that a column can have",
            got=_shown(annotation),
            remedy=str(error),
        ) from error


def parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the positional parameters of `fn`; none for a builtin without a signature."""
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in signature.parameters.values() if p.kind in kinds)


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
