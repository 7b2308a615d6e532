"""``fill``: the global batch of an attached job grows into free memory, and the learning rate follows it. Pure."""

import math
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from controlplane.protocol.parts import Part

Rule = Literal["linear", "square-root"]
RULES: Final[tuple[str, ...]] = ("", *get_args(Rule))
"""Ranks send one another a rule as its place here; the first: none."""


class Fill(Part, frozen=True, kw_only=True):
    """How far the global batch may grow, and what becomes of the learning rate. Both must be chosen."""

    limit: Annotated[float, Meta(gt=1.0, le=64.0)]
    """The most that it grows to, as a multiple of the script's."""
    learning_rate: Rule
    """Multiplied by what the batch is multiplied by, or by the square root of it."""


def lr_scale(rule: str, batch: int, base: int) -> float:
    """What the learning rate is multiplied by where ``batch`` samples are trained on instead of ``base``."""
    ratio = batch / base if rule and base else 1.0
    return math.sqrt(ratio) if rule == "square-root" else ratio
