"""What of PSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdicts


@pytest.mark.parametrize(
    ("headline", "expected"),
    [
        ("ASP makes 200 updates of each worker", {"reproduced"}),
        ("pBSP makes about 85 % more updates", {"not", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, expected: set[str]) -> None:
    assert verdicts("psp", headline) <= expected
