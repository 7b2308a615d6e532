"""The rule by which a row counts as reproduced: one for all, with bounds on both sides.

- *effect*: both figures are ratios against a baseline. The logarithm of the measured one over that of the paper's
  is 0.7 to 1.43: reproduced; half to twice: partly; else: not. Where the paper gives a range, anything in it is
reproduced. - *difference*: the measured one over the paper's, by the same bounds.
- *equal*: the measured figure is no further from the paper's than the row's tolerance: reproduced; twice that: partly;
  else: not. Twice the tolerance must be less than the distance to what the row would be if the paper were wrong
  (``otherwise``).
- *at most*: the measured figure is at most the paper's, and at least the row's other bound: reproduced; else: not.
"""

import math
from typing import Literal

Kind = Literal["effect", "difference", "equal", "at most"]
Verdict = Literal["reproduced", "partly", "not", "not measured"]
REPRODUCED, PARTLY = 0.7, 0.5
"""Least fraction of the paper's effect; the inverse is the largest multiple."""


def judge(
    kind: Kind,
    paper: float,
    ours: float,
    *,
    upto: float | None = None,
    tolerance: float | None = None,
    least: float | None = None,
) -> Verdict:
    """By the rule above. ``upto``: the other end of the paper's range; ``least``: the lower bound of *at most*."""
    if kind == "at most":
        assert least is not None
        return "reproduced" if least <= ours <= paper else "not"
    if kind == "equal":
        assert tolerance is not None
        off = abs(ours - paper)
        return "reproduced" if off <= tolerance else "partly" if off <= 2 * tolerance else "not"
    if upto is not None and min(paper, upto) <= ours <= max(paper, upto):
        return "reproduced"
    parts = [_part(kind, figure, ours) for figure in (paper, upto) if figure is not None]
    if any(_is_within(part, REPRODUCED) for part in parts):
        return "reproduced"
    return "partly" if any(_is_within(part, PARTLY) for part in parts) else "not"


def lowered(verdict: Verdict) -> Verdict:
    """The verdict that is one step worse."""
    return "partly" if verdict == "reproduced" else "not"


def _part(kind: Kind, paper: float, ours: float) -> float:
    """The measured effect as a fraction of the paper's."""
    if kind == "difference":
        return ours / paper
    return math.log(ours) / math.log(paper) if ours > 0 else -math.inf


def _is_within(part: float, least: float) -> bool:
    return least <= part <= 1 / least
