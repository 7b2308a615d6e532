"""What of PSP comes out."""

import pytest

from tests.simulator.reproduction.support import verdict


@pytest.mark.parametrize(
    ("headline", "verdicts"),
    [
        ("ASP makes 200 updates of each worker", {"reproduced"}),
        ("pBSP makes about 85 % more updates", {"not", "partly"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, verdicts: set[str]) -> None:
    assert verdict("psp", headline) in verdicts
