"""How an agent's credential is replaced: which of the two is good at each moment, and that no step locks it out."""

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.fleet import credentials
from controlplane.fleet.credentials import (
    RENEWAL_RETRY,
    ROTATION_LIMIT,
    RotationRefused,
    agent_admitted,
    credential_issue,
    credential_kept,
    credential_not_kept,
    credentials_over,
    expired_sentence,
    renewals_request,
    renewed_from,
    rotation,
    rotation_request,
    rotation_withdraw,
)
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import digest
from controlplane.fleet.services import agent_connected, agent_disconnected, token_create, token_redeem
from tests.support.rows import hello

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATER = NOON + ROTATION_LIMIT

pytestmark = pytest.mark.django_db


@pytest.fixture
def old() -> str:
    """The credential of m1, which has joined, is here, and takes new ones."""
    token, _ = token_create(labels={})
    enrolment = token_redeem(token=token, name="m1")
    agent_connected(enrolment.agent, hello("m1", rotates=True))
    return enrolment.credential


def m1() -> Agent:
    return Agent.objects.get(name="m1")


def issued() -> str:
    rotation_request(m1().pk, now=NOON)
    secret = credential_issue(m1().pk, None, now=NOON)
    assert secret is not None
    return secret


def good(*secrets: str, now: datetime = NOON) -> list[bool]:
    return [agent_admitted(secret, now=now) is not None for secret in secrets]


def test_the_old_one_is_good_until_the_new_one_is_acknowledged_and_never_afterwards(old: str) -> None:
    new = issued()
    assert rotation(m1(), NOON).state == "pending"
    assert good(old) == [True]
    assert credential_kept(m1().pk, digest(new), now=NOON)
    assert good(old, new) == [False, True]
    assert rotation(m1(), LATER) == credentials.Rotation(state="", requested_at=None, rotated_at=NOON, failure="")
    assert not credential_kept(m1().pk, digest(new)), "said again, as after a reconnect"


def test_a_machine_with_the_new_credential_has_stored_it_even_without_acknowledgement(old: str) -> None:
    new = issued()
    admission = agent_admitted(new, now=NOON)
    assert admission is not None
    assert (admission.agent.name, admission.rotated, admission.outstanding) == ("m1", True, None)
    assert good(old, new) == [False, True]


def test_a_machine_that_crashed_before_it_stored_a_credential_gets_another(old: str) -> None:
    lost = issued()
    admission = agent_admitted(old, now=NOON)
    assert admission is not None
    assert admission.outstanding == digest(lost)
    again = credential_issue(m1().pk, admission.outstanding, now=NOON)
    assert again is not None
    assert credential_issue(m1().pk, admission.outstanding, now=NOON) is None, "an older connection makes none"
    assert good(lost, again, old) == [False, True, False]


def test_after_the_limit_the_old_one_is_not_good_and_the_new_one_still_is(old: str) -> None:
    new = issued()
    assert good(old, now=LATER - timedelta(seconds=1)) == [True]
    assert good(old, now=LATER) == [False]
    assert rotation(m1(), LATER).state == "ended"
    with pytest.raises(
        RotationRefused, match="never acknowledged its new credential, and the old one has ended: stop it"
    ):
        rotation_request(m1().pk, now=LATER)
    assert good(new, old, now=LATER) == [True, False]


def test_a_machine_without_the_rotation_message_keeps_its_credential_and_can_be_retried(old: str) -> None:
    rotation_request(m1().pk, now=NOON)
    assert credential_issue(m1().pk, None, now=LATER) is None
    assert rotation(m1(), LATER).state == "unheard"
    assert good(old, now=LATER) == [True]
    rotation_request(m1().pk, now=LATER)
    assert credential_issue(m1().pk, None, now=LATER) is not None


def test_one_that_could_not_keep_it_continues_with_the_old_one(old: str) -> None:
    new = issued()
    assert credential_not_kept(m1().pk, digest(new), "the disk is full")
    assert good(new, old, now=LATER) == [False, True]
    assert (rotation(m1(), NOON).state, rotation(m1(), NOON).failure) == ("", "the disk is full")


def test_no_credential_is_made_without_a_request(old: str) -> None:
    assert credential_issue(m1().pk, None) is None
    asked_at = rotation_request(m1().pk, now=NOON)
    assert rotation_withdraw(m1().pk, asked_at)
    assert credential_issue(m1().pk, None, now=NOON) is None
    issued()
    assert not rotation_withdraw(m1().pk, NOON), "a secret was made"


DAY = timedelta(days=1)
LIFETIME = 90 * DAY


def expiring(**fields: datetime | None) -> Agent:
    Agent.objects.update(**{"credential_expires_at": NOON + LIFETIME, **fields})
    return m1()


def test_a_credential_expires_and_is_refused_with_the_cure(old: str) -> None:
    expiring()
    last = agent_admitted(old, now=NOON + LIFETIME - timedelta(seconds=1))
    assert last is not None
    assert last.expired_at is None
    over = agent_admitted(old, now=NOON + LIFETIME)
    assert over is not None
    assert over.expired_at is not None
    assert expired_sentence(over.agent, over.expired_at) == (
        "the credential of agent 'm1' expired at 2026-05-31 12:00 UTC: "
        "let it join again with a token, from: python manage.py enroll --name m1"
    )


def test_a_connection_ends_with_its_credential_or_its_machine(old: str) -> None:
    expiring()
    gone = m1().pk + 1
    assert credentials_over([m1().pk], now=NOON + LIFETIME - timedelta(seconds=1)) == {}
    over = credentials_over([m1().pk, gone], now=NOON + LIFETIME)
    assert over[m1().pk].startswith("the credential of agent 'm1' expired at 2026-05-31 12:00 UTC: let it join again")
    assert over[gone].startswith("the machine was removed: ")


def test_a_connection_ends_with_a_rotation_that_was_never_acknowledged(old: str) -> None:
    issued()
    assert credentials_over([m1().pk], now=LATER - timedelta(seconds=1)) == {}
    [why] = credentials_over([m1().pk], now=LATER).values()
    assert why.startswith("agent 'm1' never acknowledged its new credential, and the old one has ended: ")


def test_a_renewal_that_was_not_acknowledged_ends_no_connection_before_the_expiry(old: str) -> None:
    expiring(credential_expires_at=NOON + DAY)
    renewals_request(now=NOON)
    assert credential_issue(m1().pk, None, now=NOON) is not None
    assert credentials_over([m1().pk], now=LATER) == {}
    assert list(credentials_over([m1().pk], now=NOON + DAY)) == [m1().pk]


def test_a_machine_that_joins_has_a_whole_lifetime_and_none_without_one(old: str, settings: Any) -> None:
    ends = m1().credential_expires_at
    assert ends is not None
    assert LIFETIME - timedelta(minutes=5) < ends - timezone.now() <= LIFETIME
    settings.CREDENTIAL_LIFETIME = None
    token, _ = token_create(labels={})
    assert Agent.objects.get(pk=token_redeem(token=token, name="m2").agent).credential_expires_at is None


def test_it_is_renewed_a_month_before_its_end_while_its_machine_is_here(old: str) -> None:
    expiring()
    assert renewals_request(now=NOON + 59 * DAY) == []
    agent_disconnected(m1().pk)
    assert renewals_request(now=NOON + 60 * DAY) == []
    agent_connected(m1().pk, hello("m1", rotates=True))
    assert renewals_request(now=NOON + 60 * DAY) == [m1()]
    assert renewals_request(now=NOON + 60 * DAY) == [], "once"
    new = credential_issue(m1().pk, None, now=NOON + 60 * DAY)
    assert new is not None
    assert credential_kept(m1().pk, digest(new), now=NOON + 61 * DAY)
    assert m1().credential_expires_at == NOON + 60 * DAY + LIFETIME, "from its request on"
    assert good(old, new, now=NOON + 61 * DAY) == [False, True]


def test_a_short_lifetime_is_renewed_after_two_thirds(old: str, settings: Any) -> None:
    settings.CREDENTIAL_LIFETIME = 3 * DAY
    expiring(credential_expires_at=NOON + 3 * DAY)
    assert renewed_from(m1()) == NOON + 2 * DAY
    assert renewals_request(now=NOON + 2 * DAY - timedelta(seconds=1)) == []
    assert renewals_request(now=NOON + 2 * DAY) == [m1()]


def test_a_renewal_that_is_not_acknowledged_locks_no_one_out(old: str) -> None:
    expiring()
    begin = NOON + 60 * DAY
    renewals_request(now=begin)
    new = credential_issue(m1().pk, None, now=begin)
    assert new is not None
    later = begin + RENEWAL_RETRY
    assert rotation(m1(), later).state == "unheard"
    admission = agent_admitted(old, now=later)
    assert admission is not None
    assert admission.outstanding == digest(new)
    assert renewals_request(now=later) == [m1()]
    assert credential_issue(m1().pk, None, now=later) is None, "a connection that was told one before"
    again = credential_issue(m1().pk, admission.outstanding, now=later)
    assert again is not None
    assert good(old, now=begin + 29 * DAY) == [True]
    assert good(again, old, now=begin + 29 * DAY) == [True, False]


def renewed_unheard() -> tuple[str, datetime]:
    """The secret of a renewal that was never acknowledged, and a moment at which it is no longer awaited."""
    expiring()
    begin = NOON + 60 * DAY
    renewals_request(now=begin)
    new = credential_issue(m1().pk, None, now=begin)
    assert new is not None
    return new, begin + ROTATION_LIMIT


def test_an_operators_rotation_takes_over_a_renewal_that_was_not_acknowledged(old: str) -> None:
    new, later = renewed_unheard()
    admission = agent_admitted(old, now=later)
    assert admission is not None
    rotation_request(m1().pk, now=later)
    assert rotation(m1(), later).state == "pending"
    again = credential_issue(m1().pk, admission.outstanding, now=later)
    assert again is not None
    assert good(new, old, now=later) == [False, True]
    assert credential_kept(m1().pk, digest(again), now=later)
    assert good(again, old, now=later) == [True, False]


def test_the_old_one_ends_ten_minutes_after_a_rotation_that_took_over(old: str) -> None:
    new, later = renewed_unheard()
    rotation_request(m1().pk, now=later)
    end = later + ROTATION_LIMIT
    assert good(old, now=end - timedelta(seconds=1)) == [True]
    assert rotation(m1(), end).state == "ended"
    assert good(old, new, now=end) == [False, True], "one that had stored the renewal comes back with it"


def test_a_withdrawn_rotation_leaves_the_renewal_as_it_was(old: str) -> None:
    new, later = renewed_unheard()
    asked_at = rotation_request(m1().pk, now=later)
    assert not rotation_withdraw(m1().pk, asked_at), "it took over a renewal"
    assert rotation_withdraw(m1().pk, asked_at, digest(new))
    assert rotation(m1(), later).state == "unheard"
    assert good(old, new, now=later + DAY) == [True, True]


def test_a_machine_whose_acknowledgement_was_lost_may_use_its_new_credential_until_it_expires(old: str) -> None:
    expiring()
    begin = NOON + 60 * DAY
    renewals_request(now=begin)
    new = credential_issue(m1().pk, None, now=begin)
    assert new is not None
    late = agent_admitted(new, now=begin + LIFETIME)
    assert late is not None
    assert late.expired_at == begin + LIFETIME


def test_a_failed_renewal_is_tried_again_an_hour_later(old: str) -> None:
    expiring()
    begin = NOON + 60 * DAY
    renewals_request(now=begin)
    new = credential_issue(m1().pk, None, now=begin)
    assert new is not None
    credential_not_kept(m1().pk, digest(new), "the disk is full")
    assert renewals_request(now=begin + RENEWAL_RETRY - timedelta(seconds=1)) == []
    assert renewals_request(now=begin + RENEWAL_RETRY) == [m1()]


def test_renewals_do_not_disturb_what_is_under_way_and_leave_old_agents_alone(old: str) -> None:
    expiring(credential_expires_at=NOON + DAY)
    rotation_request(m1().pk, now=NOON)
    assert renewals_request(now=NOON) == []
    Agent.objects.update(rotation_asked_at=None, can_rotate=False)
    assert renewals_request(now=NOON) == []
    expiring(can_rotate=True, credential_expires_at=NOON)
    assert renewals_request(now=NOON) == [], "it has expired"


def test_credentials_without_an_end_get_one_once_there_is_a_lifetime(old: str, settings: Any) -> None:
    expiring(credential_expires_at=None)
    settings.CREDENTIAL_LIFETIME = None
    assert renewals_request(now=NOON) == []
    settings.CREDENTIAL_LIFETIME = LIFETIME
    assert renewals_request(now=NOON) == [m1()]


def test_machines_that_are_there_at_the_upgrade_have_a_whole_lifetime(old: str, settings: Any) -> None:
    migration = import_module("controlplane.fleet.migrations.0005_credentials_expire")
    expiring(credential_expires_at=None)
    settings.CREDENTIAL_LIFETIME = None
    migration.begin_lifetime(apps, None)
    assert m1().credential_expires_at is None
    settings.CREDENTIAL_LIFETIME = LIFETIME
    migration.begin_lifetime(apps, None)
    ends = m1().credential_expires_at
    assert ends is not None
    assert LIFETIME - timedelta(minutes=5) < ends - timezone.now() <= LIFETIME


def test_only_hashes_are_stored(old: str) -> None:
    new = issued()
    row = Agent.objects.values().get()
    assert (row["credential_digest"], row["next_digest"]) == (digest(old), digest(new))
    assert not [key for key, value in row.items() if new in str(value) or old in str(value)]


def test_joining_again_ends_both(old: str) -> None:
    new = issued()
    agent_disconnected(m1().pk)
    token, _ = token_create(labels={}, name="m1")
    newest = token_redeem(token=token, name="m1").credential
    assert good(old, new, newest) == [False, False, True]
    assert rotation(m1(), NOON).state == ""


def test_what_cannot_be_done_is_refused_with_the_cure(old: str) -> None:
    rotation_request(m1().pk, now=NOON)
    with pytest.raises(
        RotationRefused, match="pending request for a new credential from 2026-03-02 12:00:00 UTC: wait"
    ):
        rotation_request(m1().pk, now=NOON)
    agent_connected(m1().pk, hello("m1", version="0.0.9"))
    with pytest.raises(
        RotationRefused, match=r"agent 'm1' runs 0\.0\.9, which takes no new one: update it, or stop it"
    ):
        rotation_request(m1().pk, now=NOON)
    agent_disconnected(m1().pk)
    with pytest.raises(
        RotationRefused, match=r"'m1' is offline, .* token, from: python manage\.py enroll --name m1; that ends"
    ):
        rotation_request(m1().pk, now=NOON)


def test_a_connection_without_requests_writes_nothing(old: str) -> None:
    """Agents come back all at once after an outage, and one database file has one writer at a time."""
    with CaptureQueriesContext(connection) as asked:
        assert agent_admitted(old) is not None
        assert credential_issue(m1().pk, None) is None
    assert [each["sql"] for each in asked if not each["sql"].startswith("SELECT")] == []
