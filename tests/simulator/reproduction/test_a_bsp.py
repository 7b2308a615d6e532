"""What of A-BSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdicts


@pytest.mark.parametrize(
    ("headline", "expected"),
    [
        ("physical, lr: A-BSP is 1.82 times", {"reproduced", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, expected: set[str]) -> None:
    assert verdicts("a-bsp", headline) <= expected
