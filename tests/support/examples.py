"""How many examples Hypothesis tries: fewer by default, all with ``HYPOTHESIS_PROFILE=thorough``."""

import os
from typing import Final

SHARES: Final = {"quick": 0.4, "thorough": 1.0}
"""Part of the examples that a law asks for, by profile. Each run draws others, so that many runs see many."""

FEWEST: Final = 5

PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "quick")
if PROFILE not in SHARES:
    raise ValueError(f"HYPOTHESIS_PROFILE: found {PROFILE}, expected one of {', '.join(SHARES)}")


def examples(thorough: int) -> int:
    """How many to try of so many."""
    return min(thorough, max(FEWEST, round(thorough * SHARES[PROFILE])))
