"""Detects the next training forward of a watched module, for batch samplers only.

A module that is not followed has no hook of Paceline's: it can be scripted, and compiled without a graph break.
"""

from collections.abc import Callable
from typing import Any


class Forwards:
    """Watched modules; once they are followed, ``callback`` is called before each of their training forwards."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._modules: list[Any] = []
        self._follows = False

    def add(self, module: Any) -> None:
        """Add a module."""
        self._modules.append(module)
        if self._follows:
            self.follow()

    def follow(self) -> None:
        """Follow all modules, including later ones."""
        import torch

        self._follows = True
        while self._modules:
            callback = torch.compiler.disable(self._callback)  # type: ignore[no-untyped-call]
            self._modules.pop().register_forward_pre_hook(_Hook(callback))


class _Hook:
    """Removed when its module is pickled or copied."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def __call__(self, module: Any, inputs: Any) -> None:
        import torch

        if module.training and torch.is_grad_enabled():
            self._callback()  # a graph break in compiled code

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_nothing,)


def _nothing() -> None:
    """The hook in a copy of a followed module: does nothing."""
