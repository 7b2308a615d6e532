"""Fewer examples of laws by default, and no long tests; all of both with ``HYPOTHESIS_PROFILE=thorough``."""

import os
from collections.abc import Collection, Sequence
from typing import Final

SHARES: Final = {"quick": 0.25, "thorough": 1.0}
"""Part of the examples that a law asks for, by profile. Each run draws others, so that many runs see many."""

FEWEST: Final = 5

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")
if PROFILE not in SHARES:
    raise ValueError(f"HYPOTHESIS_PROFILE: found {PROFILE}, expected one of {', '.join(SHARES)}")


def examples(thorough: int) -> int:
    """How many to try of so many."""
    return min(thorough, max(FEWEST, round(thorough * SHARES[PROFILE])))


def is_left_out(marks: Collection[str], named: Sequence[str], *, profile: str = PROFILE) -> bool:
    """Whether a test with these marks is left out: a long one, unless pytest runs tests that are ``named``."""
    return "thorough" in marks and profile != "thorough" and not any("::" in each for each in named)
