"""Turns operations into methods of a client, with their parameters, types and docstrings: one definition, sync and
async.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from paceline.client.steps import Operation

P = ParamSpec("P")
T = TypeVar("T")


class Drives(Protocol):
    """A client that runs operations and blocks until they are done."""

    def drive(self, operation: Operation[T], /) -> T:
        """Return the operation's result."""
        ...


class Awaits(Protocol):
    """A client that runs operations on an event loop."""

    def drive(self, operation: Operation[T], /) -> Awaitable[T]:
        """Return the operation's result."""
        ...


def blocking(operation: Callable[P, Operation[T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs the operation."""

    def method(self: Drives, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.drive(operation(*args, **kwargs))

    _dress(method, operation)
    return method


def awaiting(operation: Callable[P, Operation[T]]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """A method whose result is awaited."""

    def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self.drive(operation(*args, **kwargs))

    _dress(method, operation)
    return method


def _dress(method: Any, operation: Callable[..., Any]) -> None:
    """Copy the operation's name and docstring to the method, and its parameters after ``self``."""
    update_wrapper(method, operation)
    del method.__wrapped__  # it has no self, so help() would drop the first parameter
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(operation)
    answer = getattr(signature.return_annotation, "__args__", (Any,))[-1]
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=answer)
