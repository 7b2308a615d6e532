"""What of PSLD comes out."""

import pytest

from tests.simulator.reproduction.support import verdicts


@pytest.mark.parametrize(
    ("headline", "expected"),
    [
        ("vgg16: PSLD makes training 286 % faster", {"reproduced", "partly"}),
        ("resnet50, 4 slow servers of eight: 3.4 times", {"reproduced", "partly"}),
        ("six of eight servers slow: with new servers training is faster again", {"reproduced"}),
        ("six of eight servers slow: with new servers faster than without", {"reproduced", "partly"}),
        ("a threshold above 1/2 does not improve", {"reproduced"}),
        ("vgg16: reassigning holds training up for a tenth", {"reproduced"}),
    ],
)
def test_verdicts_that_are_cheap(headline: str, expected: set[str]) -> None:
    assert verdicts("psld", headline) <= expected
