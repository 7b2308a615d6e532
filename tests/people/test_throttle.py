"""Wrong passwords are bounded by account and by network."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.people import throttle
from controlplane.people.models import LoginAttempt
from controlplane.people.throttle import PER_ACCOUNT, PER_ACCOUNT_AND_NETWORK, PER_NETWORK, WINDOW, Throttled, admit

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def accepted(attempts: list[tuple[str, str, datetime]]) -> int:
    """How many of the attempts, all of them wrong, had their password checked."""
    found = 0
    for account, network, at in attempts:
        try:
            admit(account=account, network=network, now=at)
        except Throttled:
            continue
        found += 1
    return found


def test_one_network_gets_few_guesses_at_one_account() -> None:
    assert accepted([("ada", "192.0.2.1", NOON)] * 150) == PER_ACCOUNT_AND_NETWORK


def test_one_network_gets_few_guesses_at_all_accounts() -> None:
    assert accepted([(f"user{number}", "192.0.2.1", NOON) for number in range(150)]) == PER_NETWORK


def test_one_account_gets_few_guesses_from_all_networks() -> None:
    assert accepted([("ada", f"192.0.2.{number}", NOON) for number in range(150)]) == PER_ACCOUNT


def test_a_stranger_does_not_keep_the_owner_out() -> None:
    accepted([("ada", "192.0.2.1", NOON)] * 150)
    admit(account="ada", network="192.0.2.2", now=NOON)


def test_letters_case_makes_no_other_account() -> None:
    assert accepted([(name, "192.0.2.1", NOON) for name in ("ada", "Ada", "ADA")] * 50) == PER_ACCOUNT_AND_NETWORK


def test_it_reports_when_the_next_attempt_is_accepted() -> None:
    accepted([("ada", "192.0.2.1", NOON + number * SECOND) for number in range(PER_ACCOUNT_AND_NETWORK)])
    later = NOON + 60 * SECOND
    with pytest.raises(Throttled) as refused:
        admit(account="ada", network="192.0.2.1", now=later)
    assert refused.value.wait_s == int((NOON + WINDOW - later).total_seconds())
    admit(account="ada", network="192.0.2.1", now=later + refused.value.wait_s * SECOND)


def test_a_right_password_forgets_the_wrong_ones_of_that_account_alone() -> None:
    accepted([("eve", "192.0.2.1", NOON)] * 5)
    accepted([("ada", "192.0.2.1", NOON)] * 5)
    throttle.forgive(admit(account="ada", network="192.0.2.1", now=NOON))
    assert LoginAttempt.objects.count() == 5


def test_what_was_typed_as_a_name_is_not_stored() -> None:
    admit(account="my password", network="192.0.2.1", now=NOON)
    assert "password" not in str(list(LoginAttempt.objects.values_list("account", "network")))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(gaps=st.lists(st.integers(0, 400), min_size=20, max_size=60))
def test_no_window_holds_more_than_the_limit(gaps: list[int]) -> None:
    LoginAttempt.objects.all().delete()
    now = NOON
    for gap in gaps:
        now += gap * SECOND
        accepted([("ada", "192.0.2.1", now)])
    times = sorted(LoginAttempt.objects.values_list("at", flat=True))
    assert all(sum(first <= each < first + WINDOW for each in times) <= PER_ACCOUNT_AND_NETWORK for first in times)
