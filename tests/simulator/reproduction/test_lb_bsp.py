"""What of LB-BSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdict


@pytest.mark.parametrize(
    ("headline", "verdicts"),
    [
        ("shares settle at (89, 21, 12, 6)", {"reproduced"}),
        ("with a quarter of its bandwidth", {"reproduced"}),
        ("scaling batches keeps the accuracy", {"reproduced"}),
        ("scaling local steps instead loses", {"reproduced", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, verdicts: set[str]) -> None:
    assert verdict("lb-bsp", headline) in verdicts
