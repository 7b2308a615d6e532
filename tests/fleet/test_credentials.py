"""How an agent's credential is replaced: which of the two is good at each moment, and that no step locks it out."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.fleet import credentials
from controlplane.fleet.credentials import (
    ROTATION_LIMIT,
    RotationRefused,
    agent_admitted,
    credential_issue,
    credential_kept,
    credential_not_kept,
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
    assert rotation(m1(), LATER) == credentials.Rotation(state="", asked_at=None, rotated_at=NOON, failure="")
    assert not credential_kept(m1().pk, digest(new)), "said again, as after a reconnect"


def test_who_comes_with_the_new_one_has_kept_it_whether_or_not_it_said_so(old: str) -> None:
    new = issued()
    admission = agent_admitted(new, now=NOON)
    assert admission is not None
    assert (admission.agent.name, admission.rotated, admission.outstanding) == ("m1", True, None)
    assert good(old, new) == [False, True]


def test_one_that_crashed_before_it_kept_the_new_one_comes_with_the_old_one_and_is_told_another(old: str) -> None:
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


def test_one_that_was_never_told_keeps_the_old_one_and_can_be_asked_again(old: str) -> None:
    rotation_request(m1().pk, now=NOON)
    assert credential_issue(m1().pk, None, now=LATER) is None
    assert rotation(m1(), LATER).state == "unheard"
    assert good(old, now=LATER) == [True]
    rotation_request(m1().pk, now=LATER)
    assert credential_issue(m1().pk, None, now=LATER) is not None


def test_one_that_could_not_keep_it_goes_on_with_the_old_one(old: str) -> None:
    new = issued()
    assert credential_not_kept(m1().pk, digest(new), "the disk is full")
    assert good(new, old, now=LATER) == [False, True]
    assert (rotation(m1(), NOON).state, rotation(m1(), NOON).failure) == ("", "the disk is full")


def test_nothing_is_made_unless_it_was_asked_for(old: str) -> None:
    assert credential_issue(m1().pk, None) is None
    asked_at = rotation_request(m1().pk, now=NOON)
    assert rotation_withdraw(m1().pk, asked_at)
    assert credential_issue(m1().pk, None, now=NOON) is None
    issued()
    assert not rotation_withdraw(m1().pk, NOON), "a secret was made"


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
    with pytest.raises(RotationRefused, match="a new credential coming, asked for at 2026-03-02 12:00:00 UTC: wait"):
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


def test_a_connection_for_which_nothing_was_asked_writes_nothing(old: str) -> None:
    """Agents come back all at once after an outage, and one database file has one writer at a time."""
    with CaptureQueriesContext(connection) as asked:
        assert agent_admitted(old) is not None
        assert credential_issue(m1().pk, None) is None
    assert [each["sql"] for each in asked if not each["sql"].startswith("SELECT")] == []
