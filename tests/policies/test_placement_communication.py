import math

import pytest

from controlplane.core.choices import Transfer
from controlplane.policies.placement.communication import Line, Moments, exchange_s, fit, lines_of, remember
from tests.policies.network import MIB

MEASURED = ((1.0, 0.012), (2.0, 0.022), (4.0, 0.042), (8.0, 0.082))


def seen(server: int, mib: float, seconds: float, *, iteration: int = 0, rank: int = 0) -> Transfer:
    return Transfer(rank=rank, server=server, iteration=iteration, bytes=int(mib * MIB), seconds=seconds)


def measure(*points: tuple[float, float], forgetting: float = 1.0) -> Moments:
    transfers = [seen(0, mib, seconds, rank=rank) for rank, (mib, seconds) in enumerate(points)]
    return remember({}, transfers, forgetting=forgetting)[0]


def test_alpha_and_beta_are_those_of_the_line_that_was_measured() -> None:
    line = fit(measure(*MEASURED))
    assert (line.alpha, line.beta) == pytest.approx((0.01, 0.002))
    assert line.mean(100 * MIB) == pytest.approx(1.002)
    assert line.error(100 * MIB) == pytest.approx(0.0, abs=1e-9)


def test_mean_and_standard_error_are_those_of_ordinary_least_squares() -> None:
    """By hand: sizes 1, 2, 3; seconds 1, 2, 4; slope 1.5, residuals 1/6, -1/3, 1/6, variance 1/6."""
    line = fit(measure((1.0, 1.0), (2.0, 2.0), (3.0, 4.0)))
    assert line is not None
    assert line.beta == 0.0  # the line itself begins at -2/3, which no latency does: through the origin instead
    line = fit(measure((1.0, 2.0), (2.0, 3.0), (3.0, 5.0)))
    assert (line.alpha, line.beta, line.variance) == pytest.approx((1.5, 1 / 3, 1 / 6))
    assert line.error(2 * MIB) == pytest.approx(math.sqrt(1 / 6 / 3))
    assert line.error(4 * MIB) == pytest.approx(math.sqrt(1 / 6 * (1 / 3 + 4 / 2)))
    assert line.lower(2 * MIB, 1.645) == pytest.approx(10 / 3 - 1.645 * math.sqrt(1 / 18))


def test_measurements_of_one_size_cannot_tell_latency_from_bandwidth() -> None:
    line = fit(measure((4.0, 0.05), (4.0, 0.03), (4.0, 0.04)))
    assert (line.alpha, line.beta, line.mean(8 * MIB)) == pytest.approx((0.01, 0.0, 0.08))


def test_times_that_fall_with_size_are_noise() -> None:
    line = fit(measure((1.0, 0.02), (2.0, 0.01), (3.0, 0.015)))
    assert line.alpha > 0
    assert line.beta == 0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_times_that_cannot_be_are_ignored(seconds: float) -> None:
    assert remember({}, [seen(0, 1.0, seconds)], forgetting=0.9) == {}
    assert remember({}, [seen(0, 0.0, 0.01)], forgetting=0.9) == {}


def test_old_measurements_fade_with_the_iterations_that_pass() -> None:
    transfers = [seen(0, mib, 10 * seconds, iteration=0) for mib, seconds in MEASURED]
    transfers += [seen(0, mib, seconds, iteration=50) for mib, seconds in MEASURED]
    line = fit(remember({}, transfers, forgetting=0.9)[0])
    assert line.mean(8 * MIB) == pytest.approx(0.082, rel=0.06)


def test_a_new_server_is_predicted_to_be_as_fast_as_the_others_are_on_average() -> None:
    transfers = [seen(0, mib, seconds) for mib, seconds in MEASURED]
    transfers += [seen(1, mib, 3 * seconds) for mib, seconds in MEASURED]
    lines = lines_of(remember({}, transfers, forgetting=1.0), [0, 1, 2])
    speeds = [1 / lines[server].alpha for server in range(3)]
    assert speeds[2] == pytest.approx((speeds[0] + speeds[1]) / 2)
    assert lines[2].beta == pytest.approx((lines[0].beta + lines[1].beta) / 2)
    assert lines[2].error(MIB) == lines[2].mean(MIB)


def test_where_nothing_was_measured_nothing_is_predicted() -> None:
    assert lines_of({}, [0, 1]) == {}


def test_the_order_of_measurements_does_not_matter() -> None:
    transfers = [seen(s, mib, t, rank=r) for r, (mib, t) in enumerate(MEASURED) for s in range(2)]
    assert remember({}, transfers, forgetting=0.9) == remember({}, transfers[::-1], forgetting=0.9)


def test_servers_without_a_load_take_no_time() -> None:
    lines = {0: Line(alpha=0.01, beta=0.5), 1: Line(alpha=0.02, beta=0.0)}
    assert exchange_s(lines, {0: 0, 1: 2 * MIB}) == pytest.approx(0.04)
