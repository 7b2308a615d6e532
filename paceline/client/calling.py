"""Operations as methods of a client, with their parameters, types and words: written once, carried out in two ways."""

import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from paceline.client.steps import Operation

P = ParamSpec("P")
T = TypeVar("T")


class Drives(Protocol):
    """Whoever carries operations out and blocks meanwhile."""

    def drive(self, operation: Operation[T], /) -> T:
        """What comes of it."""
        ...


class Awaits(Protocol):
    """Whoever carries operations out on an event loop."""

    def drive(self, operation: Operation[T], /) -> Awaitable[T]:
        """What comes of it."""
        ...


def blocking(operation: Callable[P, Operation[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that carries the operation out."""

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
    """Put the method under the operation's name, with its words and its parameters behind ``self``."""
    update_wrapper(method, operation)
    del method.__wrapped__  # it has no self, which help() would then take away from the parameters
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(operation)
    answer = getattr(signature.return_annotation, "__args__", (Any,))[-1]
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=answer)
