"""``fill``: the global batch of an attached job grows into free memory, and the learning rate
is scaled with it. Pure.
"""

import math
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from controlplane.protocol.parts import Part

Rule = Literal["linear", "square-root"]
RULES: Final[tuple[str, ...]] = ("", *get_args(Rule))
"""Ranks exchange a rule as its index here; the first: none."""


class Fill(Part, frozen=True, kw_only=True):
    """Limit of the global batch, and the rule for the learning rate. Both are required."""

    limit: Annotated[float, Meta(gt=1.0, le=64.0)]
    """Maximum of the global batch, as a multiple of the script's."""
    learning_rate: Rule
    """The learning rate is multiplied by the growth of the batch, or by its square root."""


def lr_scale(rule: str, batch: int, base: int) -> float:
    """The factor of the learning rate if the batch is ``batch`` samples instead of ``base``."""
    ratio = batch / base if rule and base else 1.0
    return math.sqrt(ratio) if rule == "square-root" else ratio
