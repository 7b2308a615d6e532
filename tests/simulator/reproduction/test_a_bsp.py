"""What of A-BSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdict


@pytest.mark.parametrize(
    ("headline", "verdicts"),
    [
        ("physical, lr: A-BSP is 1.82 times", {"reproduced", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, verdicts: set[str]) -> None:
    assert verdict("a-bsp", headline) in verdicts
