"""How machines join."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.selectors import agent_by_credential, digest
from controlplane.fleet.services import (
    Enrolment,
    EnrolmentRefused,
    NameTaken,
    agent_connected,
    agent_disconnected,
    token_create,
    token_redeem,
)
from tests.support.rows import emulated, hello, online_agent

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.django_db
def test_a_machine_joins_and_is_known_by_its_credential() -> None:
    token, _ = token_create(labels={"gpu": "a100"}, now=NOON)
    joined = token_redeem(token=token, name="m1", now=NOON + timedelta(minutes=59))
    agent = agent_by_credential(joined.credential)
    assert agent is not None
    assert (joined.labels, agent.pk, agent.name, agent.state, agent.labels) == (
        {"gpu": "a100"},
        joined.agent,
        "m1",
        "offline",
        {"gpu": "a100"},
    )
    assert agent_by_credential(token) is None


@pytest.mark.django_db
def test_only_hashes_are_stored() -> None:
    token, _ = token_create(labels={})
    credential = token_redeem(token=token, name="m1").credential
    stored = [*EnrolmentToken.objects.values_list("digest"), *Agent.objects.values_list("credential_digest")]
    assert stored == [(digest(token),), (digest(credential),)]


@pytest.mark.django_db
def test_a_token_works_once() -> None:
    token, _ = token_create(labels={}, now=NOON)
    token_redeem(token=token, name="m1", now=NOON)
    with pytest.raises(EnrolmentRefused, match="was used at 2026-03-02 12:00:00 UTC, and works once; make another"):
        token_redeem(token=token, name="m2", now=NOON)
    assert [agent.name for agent in Agent.objects.all()] == ["m1"]


@pytest.mark.django_db
def test_a_token_expires() -> None:
    token, _ = token_create(labels={}, now=NOON)
    with pytest.raises(EnrolmentRefused, match="expired at 2026-03-02 13:00:00 UTC"):
        token_redeem(token=token, name="m1", now=NOON + timedelta(hours=1))


@pytest.mark.django_db
def test_an_unknown_token_is_refused() -> None:
    with pytest.raises(EnrolmentRefused, match="this enrolment token is not known; make another with: python manage"):
        token_redeem(token="made up", name="m1")


@pytest.mark.django_db
def test_the_name_of_an_agent_that_is_online_is_taken_and_the_token_stays_good() -> None:
    online_agent("m1")
    token, _ = token_create(labels={})
    with pytest.raises(NameTaken, match="agent 'm1' is online; stop it first, or join under another --name"):
        token_redeem(token=token, name="m1")
    assert isinstance(token_redeem(token=token, name="m2"), Enrolment)


@pytest.mark.django_db
def test_a_machine_that_lost_its_credential_joins_again_and_the_old_one_ends() -> None:
    agent = online_agent("m1")
    agent_disconnected(agent.pk)
    token, _ = token_create(labels={})
    again = token_redeem(token=token, name="m1")
    assert (again.agent, Agent.objects.get().credential_digest) == (agent.pk, digest(again.credential))


@pytest.mark.django_db
def test_an_agent_says_what_it_offers_but_its_token_has_the_last_word_on_labels() -> None:
    token, _ = token_create(labels={"zone": "b"})
    agent_id = token_redeem(token=token, name="m1").agent
    offer = {"slots": emulated(250.0), "labels": {"zone": "a", "cpu": "fast"}}
    assert agent_connected(agent_id, hello("m1", **offer), now=NOON)
    agent = Agent.objects.get()
    assert (agent.state, agent.labels, agent.slots, agent.server_slots, agent.host, agent.seen_at) == (
        "online",
        {"zone": "b", "cpu": "fast"},
        [{"emulate": {"samples_per_second": 250.0}}],
        1,
        "10.0.0.7",
        NOON,
    )


@pytest.mark.django_db
def test_going_offline_is_said_once() -> None:
    agent = online_agent("m1")
    assert [agent_disconnected(agent.pk), agent_disconnected(agent.pk), agent_connected(999, hello())] == [
        True,
        False,
        False,
    ]


@pytest.mark.django_db(transaction=True)
def test_of_many_who_redeem_one_token_at_once_one_joins() -> None:
    token, _ = token_create(labels={})

    def redeem(number: int) -> str:
        try:
            token_redeem(token=token, name=f"m{number}")
        except EnrolmentRefused:
            return "refused"
        else:
            return "joined"
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(redeem, range(8)))
    assert (sorted(outcomes), Agent.objects.count()) == (["joined"] + ["refused"] * 7, 1)
