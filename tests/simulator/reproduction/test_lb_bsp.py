"""What of LB-BSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdicts


@pytest.mark.parametrize(
    ("headline", "expected"),
    [
        ("shares settle at (89, 21, 12, 6)", {"reproduced"}),
        ("with a quarter of its bandwidth", {"reproduced"}),
        ("scaling batches keeps the accuracy", {"reproduced"}),
        ("scaling local steps instead loses", {"reproduced", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, expected: set[str]) -> None:
    assert verdicts("lb-bsp", headline) <= expected
