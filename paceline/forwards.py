"""Calls before the forwards of a module, which its copies do not make.

A module that is not followed has no hook of Paceline's: it can be scripted, and compiled without a graph break.
"""

from collections.abc import Callable
from typing import Any


class Forwards:
    """Watched modules; once they are followed, ``callback`` is called before each of their training forwards."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._modules: list[Any] = []
        self.follows = False

    def add(self, module: Any) -> None:
        """Add a module."""
        self._modules.append(module)
        if self.follows:
            self.follow()

    def follow(self) -> None:
        """Follow all modules, including later ones."""
        self.follows = True
        while self._modules:
            before_forward(self._modules.pop(), self._callback, in_training=True)


def before_forward(module: Any, callback: Callable[[], None], *, in_training: bool = False) -> None:
    """Call back before each forward of ``module`` that makes gradients; ``in_training``: and only in training mode."""
    import torch

    module.register_forward_pre_hook(_Hook(torch.compiler.disable(callback), in_training))  # type: ignore[no-untyped-call]


class _Hook:
    """Removed when its module is pickled or copied."""

    def __init__(self, callback: Callable[[], None], in_training: bool) -> None:
        self._callback, self._in_training = callback, in_training

    def __call__(self, module: Any, inputs: Any) -> None:
        import torch

        if torch.is_grad_enabled() and (module.training or not self._in_training):
            self._callback()  # a graph break in compiled code

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_nothing, True)


def _nothing() -> None:
    """The hook in a copy of a followed module: does nothing."""
