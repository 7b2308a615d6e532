"""Multiplies the learning rates of a torch optimizer during each of its steps."""

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any

from paceline.errors import CannotAttach

FOLLOWED = "_paceline_rates"
"""The attribute that marks such an optimizer."""


def follow_batch(optimizer: Any, scale: Callable[[], float]) -> None:
    """Multiply the learning rates by ``scale()`` in each step; in between they keep the values that the script has set.

    Calling it twice for an optimizer has no further effect.

    Raises:
        CannotAttach: if it has no step hooks, as torch's optimizers have.
    """
    optimizer = getattr(optimizer, "optimizer", optimizer)  # as Accelerate and Lightning wrap it
    if not hasattr(optimizer, "register_step_pre_hook"):
        found = type(optimizer).__name__
        raise CannotAttach(
            f"scale_lr(): found a {found}, expected optimizers of torch; or multiply by lr_scale yourself"
        )
    if isinstance(getattr(optimizer, FOLLOWED, None), _Rates):
        getattr(optimizer, FOLLOWED).scale = scale
        return
    rates = _Rates(scale)
    setattr(optimizer, FOLLOWED, rates)
    optimizer.register_step_pre_hook(rates.multiply)
    optimizer.register_step_post_hook(rates.put_back)
    optimizer.step = MethodType(_undone_if_it_fails(optimizer.step, rates), optimizer)


def _undone_if_it_fails(step: Callable[..., Any], rates: "_Rates") -> Callable[..., Any]:
    """Wraps ``step``: torch calls no post-hook after a step that raises. A method, since schedulers wrap it again."""

    @wraps(step)
    def guarded(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return step(*arguments, **named)
        except BaseException:
            rates.put_back(optimizer)
            raise

    return guarded


class _Rates:
    """The rates of one optimizer during one of its steps."""

    def __init__(self, scale: Callable[[], float]) -> None:
        self.scale = scale
        self._own: list[Any] = []

    def multiply(self, optimizer: Any, *_: Any) -> None:
        """Multiply the rates, before the step."""
        self.put_back(optimizer)  # if another library has replaced the wrapped step, and the last one raised
        scale = self.scale()
        if scale == 1.0:
            return
        self._own = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * scale

    def put_back(self, optimizer: Any, *_: Any) -> None:
        """Restore the rates, after the step."""
        own, self._own = self._own, []
        for group, rate in zip(optimizer.param_groups, own, strict=False):
            group["lr"] = rate
