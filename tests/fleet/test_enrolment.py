"""How machines join."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from controlplane.fleet.models import Agent, EnrolmentToken, Reservation
from controlplane.fleet.selectors import agent_by_credential, capacity, digest
from controlplane.fleet.services import (
    Enrolment,
    EnrolmentRefused,
    NameTaken,
    agent_connected,
    agent_disconnected,
    agents_remove_absent,
    token_create,
    token_redeem,
    token_revoke,
)
from tests.support.rows import emulated, hello, online_agent, reserve

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
@pytest.mark.parametrize("bound", ["", "m1"])
def test_the_name_of_an_agent_that_is_online_is_taken_and_the_token_stays_good(bound: str) -> None:
    agent = online_agent("m1")
    token, _ = token_create(labels={}, name=bound)
    with pytest.raises(NameTaken, match="agent 'm1' "):
        token_redeem(token=token, name="m1")
    agent_disconnected(agent.pk)
    assert isinstance(token_redeem(token=token, name=bound or "m2"), Enrolment)


@pytest.mark.django_db
def test_a_token_for_any_machine_takes_over_none_that_is_known() -> None:
    token, _ = token_create(labels={"gpu": "a100"})
    known = token_redeem(token=token, name="m1")
    other, row = token_create(labels={"gpu": "none"})
    with pytest.raises(NameTaken, match=r"has joined before; .* with: python manage.py enroll --name m1"):
        token_redeem(token=other, name="m1")
    row.refresh_from_db()
    agent = agent_by_credential(known.credential)
    assert agent is not None
    assert (agent.labels, row.used_at) == ({"gpu": "a100"}, None)


@pytest.mark.django_db
def test_a_token_for_a_machine_lets_it_join_again_and_its_old_credential_ends() -> None:
    first, _ = token_create(labels={"gpu": "a100", "zone": "b"})
    old = token_redeem(token=first, name="m1")
    again, _ = token_create(labels={"gpu": "t4"}, name="m1")
    new = token_redeem(token=again, name="m1")
    agent = agent_by_credential(new.credential)
    assert agent is not None
    assert (new.agent, agent.labels, agent_by_credential(old.credential)) == (old.agent, {"gpu": "t4"}, None)


@pytest.mark.django_db
def test_a_token_for_a_machine_is_for_no_other_and_stays_good() -> None:
    token, _ = token_create(labels={}, name="m1")
    with pytest.raises(EnrolmentRefused, match="this enrolment token is for machine 'm1', and 'm2' asks"):
        token_redeem(token=token, name="m2")
    assert isinstance(token_redeem(token=token, name="m1"), Enrolment)


@pytest.mark.django_db
def test_labels_of_the_token_and_of_the_machine_are_kept_apart() -> None:
    token, _ = token_create(labels={"zone": "b"})
    agent_id = token_redeem(token=token, name="m1").agent
    offer = {"slots": emulated(250.0), "labels": {"zone": "a", "cpu": "fast"}}
    assert agent_connected(agent_id, hello("m1", **offer), now=NOON)
    agent = Agent.objects.get()
    assert (agent.state, agent.labels, agent.slots, agent.server_slots, agent.host, agent.seen_at) == (
        "online",
        {"zone": "b"},
        [{"emulate": {"samples_per_second": 250.0}}],
        1,
        "10.0.0.7",
        NOON,
    )
    assert agent.unverified_labels == {"zone": "a", "cpu": "fast"}


@pytest.mark.django_db
def test_no_job_is_placed_by_labels_that_a_machine_sets_itself() -> None:
    token, _ = token_create(labels={"zone": "b"})
    agent_connected(token_redeem(token=token, name="m1").agent, hello("m1", labels={"cleared": "yes", "zone": "a"}))
    found = {
        (key, value): capacity({key: value}).matching
        for key, value in (("zone", "b"), ("zone", "a"), ("cleared", "yes"))
    }
    assert found == {("zone", "b"): 1, ("zone", "a"): 0, ("cleared", "yes"): 0}
    assert reserve(7, {"cleared": "yes"}, workers=1, servers=0) is None


@pytest.mark.django_db
def test_going_offline_is_reported_once() -> None:
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


@pytest.mark.django_db
def test_a_reusable_token_admits_as_many_machines_as_it_has_uses() -> None:
    token, row = token_create(labels={"pool": "a100"}, uses=2, now=NOON)
    joined = [token_redeem(token=token, name=name, now=NOON) for name in ("m1", "m2")]
    assert [each.labels for each in joined] == [{"pool": "a100"}] * 2
    with pytest.raises(EnrolmentRefused, match="was for 2 machines, and all of them have joined; make another"):
        token_redeem(token=token, name="m3", now=NOON)
    row.refresh_from_db()
    assert (row.used, row.used_at) == (2, NOON)


@pytest.mark.django_db
def test_a_machine_joins_again_on_its_reusable_token_as_itself_and_at_no_use() -> None:
    token, row = token_create(labels={}, uses=2)
    first = token_redeem(token=token, name="m1")
    again = token_redeem(token=token, name="m1")
    row.refresh_from_db()
    assert (again.agent, again.credential != first.credential, row.used) == (first.agent, True, 1)
    assert agent_by_credential(first.credential) is None


@pytest.mark.django_db
def test_a_machine_that_is_online_is_not_replaced_by_its_reusable_token() -> None:
    token, _ = token_create(labels={}, uses=2)
    joined = token_redeem(token=token, name="m1")
    agent_connected(joined.agent, hello("m1"))
    with pytest.raises(NameTaken, match="agent 'm1' is online"):
        token_redeem(token=token, name="m1")


@pytest.mark.django_db
def test_a_reusable_token_takes_over_no_machine_that_joined_otherwise() -> None:
    single, _ = token_create(labels={})
    token_redeem(token=single, name="m1")
    token, row = token_create(labels={}, uses=2)
    with pytest.raises(NameTaken, match="agent 'm1' has joined before"):
        token_redeem(token=token, name="m1")
    row.refresh_from_db()
    assert row.used == 0


def ended_fleet(how: str = "revoked", *, uses: int = 2, created_by: User | None = None) -> Enrolment:
    """The machine m1, offline, of a fleet whose token has ended by noon."""
    token, row = token_create(labels={"pool": "old"}, uses=uses, created_by=created_by, now=NOON - timedelta(hours=2))
    joined = token_redeem(token=token, name="m1", now=NOON - timedelta(hours=2))
    EnrolmentToken.objects.filter(pk=row.pk).update(expires_at=NOON + timedelta(hours=how == "revoked"))
    if how == "revoked":
        token_revoke(row.pk, now=NOON)
    return joined


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_machine_of_an_ended_fleet_joins_the_next_fleet_of_its_owner_as_itself(how: str) -> None:
    ann = User.objects.create(username="ann")
    former = ended_fleet(how, created_by=ann)
    token, row = token_create(labels={"pool": "new"}, uses=2, created_by=ann, now=NOON)
    joined = token_redeem(token=token, name="m1", now=NOON)
    agent = agent_by_credential(joined.credential)
    assert agent is not None
    assert (joined.agent, agent.labels, agent_by_credential(former.credential)) == (former.agent, {"pool": "new"}, None)
    assert list(EnrolmentToken.objects.order_by("pk").values_list("used", flat=True)) == [0, 1]
    token_redeem(token=token, name="m1", now=NOON)
    row.refresh_from_db()
    assert row.used == 1


@pytest.mark.django_db
def test_fleets_of_the_command_line_follow_one_another() -> None:
    former = ended_fleet()
    token, _ = token_create(labels={}, uses=2, now=NOON)
    assert token_redeem(token=token, name="m1", now=NOON).agent == former.agent


@pytest.mark.django_db
def test_a_machine_of_an_ended_fleet_that_is_online_is_not_replaced() -> None:
    former = ended_fleet()
    agent_connected(former.agent, hello("m1"))
    token, row = token_create(labels={}, uses=2, now=NOON)
    with pytest.raises(NameTaken, match="agent 'm1' is online"):
        token_redeem(token=token, name="m1", now=NOON)
    row.refresh_from_db()
    assert (row.used, agent_by_credential(former.credential) is not None) == (0, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("owner", "next_owner"), [("ann", "bob"), ("ann", None), (None, "ann"), (None, "deleted"), ("deleted", None)]
)
def test_a_machine_of_an_ended_fleet_of_another_owner_is_not_taken_over(
    owner: str | None, next_owner: str | None
) -> None:
    users = {name: User.objects.create(username=name) for name in ("ann", "bob", "deleted")}
    former = ended_fleet(created_by=users.get(owner or ""))
    token, _ = token_create(labels={}, uses=2, created_by=users.get(next_owner or ""), now=NOON)
    users["deleted"].delete()
    with pytest.raises(NameTaken, match="agent 'm1' has joined before"):
        token_redeem(token=token, name="m1", now=NOON)
    assert agent_by_credential(former.credential) is not None


@pytest.mark.django_db
def test_machines_of_two_deleted_owners_are_not_exchanged() -> None:
    ann = User.objects.create(username="ann")
    ended_fleet(created_by=ann)
    token, _ = token_create(labels={}, uses=2, created_by=ann, now=NOON)
    ann.delete()
    with pytest.raises(NameTaken, match="agent 'm1' has joined before"):
        token_redeem(token=token, name="m1", now=NOON)


@pytest.mark.django_db
def test_a_machine_of_a_fleet_that_has_not_ended_is_not_taken_over() -> None:
    first, _ = token_create(labels={}, uses=2, now=NOON)
    token_redeem(token=first, name="m1", now=NOON)
    token, _ = token_create(labels={}, uses=2, now=NOON)
    with pytest.raises(NameTaken, match="agent 'm1' has joined before"):
        token_redeem(token=token, name="m1", now=NOON)


@pytest.mark.django_db
@pytest.mark.parametrize(("uses", "next_uses"), [(1, 2), (2, 1)])
def test_only_fleets_take_machines_over_and_only_from_fleets(uses: int, next_uses: int) -> None:
    ended_fleet(uses=uses)
    token, row = token_create(labels={}, uses=next_uses, now=NOON)
    with pytest.raises(NameTaken, match="agent 'm1' has joined before"):
        token_redeem(token=token, name="m1", now=NOON)
    row.refresh_from_db()
    assert row.used == 0


@pytest.mark.django_db
def test_a_machine_that_leaves_its_fleet_with_a_token_of_its_own_returns_its_use() -> None:
    token, row = token_create(labels={}, uses=2)
    token_redeem(token=token, name="m1")
    own, _ = token_create(labels={}, name="m1")
    token_redeem(token=own, name="m1")
    row.refresh_from_db()
    assert row.used == 0


@pytest.mark.django_db
def test_a_revoked_token_admits_no_one_and_its_machines_stay() -> None:
    token, row = token_create(labels={}, uses=5, now=NOON)
    joined = token_redeem(token=token, name="m1", now=NOON)
    assert [token_revoke(row.pk, now=NOON), token_revoke(row.pk, now=NOON)] == [True, False]
    for name in ("m1", "m2"):
        with pytest.raises(EnrolmentRefused, match="was revoked at 2026-03-02 12:00:00 UTC"):
            token_redeem(token=token, name=name, now=NOON)
    assert agent_by_credential(joined.credential) is not None


@pytest.mark.django_db
def test_machines_that_stay_away_for_as_long_as_their_token_allows_are_removed() -> None:
    token, _ = token_create(labels={}, uses=9, remove_after=timedelta(hours=1), now=NOON)
    kept, _ = token_create(labels={}, uses=9, now=NOON)
    ids = {name: token_redeem(token=token, name=name, now=NOON).agent for name in ("gone", "back", "busy")}
    ids["other"] = token_redeem(token=kept, name="other", now=NOON).agent
    for agent in ids.values():
        agent_connected(agent, hello("m", slots=emulated(250.0)), now=NOON)
        agent_disconnected(agent, now=NOON)
    agent_connected(ids["back"], hello("m"), now=NOON)
    Reservation.objects.create(agent_id=ids["busy"], role="worker", slot=0, job_id=1, index=0)
    assert list(agents_remove_absent(now=NOON + timedelta(minutes=59)).values()) == []
    assert list(agents_remove_absent(now=NOON + timedelta(minutes=60)).values()) == ["gone"]
    assert set(Agent.objects.values_list("name", flat=True)) == {"back", "busy", "other"}


@pytest.mark.django_db
def test_a_machine_that_was_removed_joins_again_on_its_reusable_token() -> None:
    token, row = token_create(labels={}, uses=2, remove_after=timedelta(minutes=10), now=NOON)
    for name in ("m1", "m2"):
        agent = token_redeem(token=token, name=name, now=NOON).agent
        agent_connected(agent, hello(name), now=NOON)
    agent_disconnected(agent, now=NOON)
    assert list(agents_remove_absent(now=NOON + timedelta(minutes=11)).values()) == ["m2"]
    row.refresh_from_db()
    assert row.used == 1
    assert token_redeem(token=token, name="m2", now=NOON + timedelta(minutes=12)).agent != agent
    row.refresh_from_db()
    assert row.used == 2
    with pytest.raises(EnrolmentRefused, match="was for 2 machines, and all of them have joined"):
        token_redeem(token=token, name="m3", now=NOON + timedelta(minutes=12))


@pytest.mark.django_db
def test_a_single_use_stays_used_when_its_machine_is_removed() -> None:
    token, row = token_create(labels={}, remove_after=timedelta(seconds=1), now=NOON)
    token_redeem(token=token, name="m1", now=NOON)
    assert list(agents_remove_absent(now=Agent.objects.get().joined_at + timedelta(seconds=1)).values()) == ["m1"]
    row.refresh_from_db()
    assert row.used == 1


@pytest.mark.django_db
def test_a_machine_that_joins_again_counts_as_seen() -> None:
    token, _ = token_create(labels={}, uses=2, remove_after=timedelta(minutes=10))
    token_redeem(token=token, name="m1")
    Agent.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    token_redeem(token=token, name="m1")
    assert list(agents_remove_absent().values()) == []


@pytest.mark.django_db
def test_a_machine_that_never_connected_is_removed_by_when_it_joined() -> None:
    token, _ = token_create(labels={}, remove_after=timedelta(seconds=1))
    token_redeem(token=token, name="m1")
    joined_at = Agent.objects.get().joined_at
    assert list(agents_remove_absent(now=joined_at).values()) == []
    assert list(agents_remove_absent(now=joined_at + timedelta(seconds=1)).values()) == ["m1"]


@pytest.mark.django_db(transaction=True)
def test_of_many_machines_that_join_at_once_no_more_get_in_than_there_are_uses() -> None:
    token, row = token_create(labels={}, uses=3)

    def join(name: str) -> bool:
        try:
            token_redeem(token=token, name=name)
        except EnrolmentRefused:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as threads:
        admitted = list(threads.map(join, [f"m{n}" for n in range(8)]))
    row.refresh_from_db()
    assert (sum(admitted), row.used, Agent.objects.count()) == (3, 3, 3)


@pytest.mark.django_db(transaction=True)
def test_as_many_uses_are_used_as_machines_are_left_when_some_are_removed_while_they_join_again() -> None:
    names = [f"m{number}" for number in range(6)]
    token, row = token_create(labels={}, uses=6, remove_after=timedelta(0))
    for name in names:
        token_redeem(token=token, name=name)

    def act(name: str) -> None:
        try:
            if name:
                token_redeem(token=token, name=name)
            else:
                agents_remove_absent()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(act, [*names[:3], "", *names[3:], "", *names[:3], ""]))
    row.refresh_from_db()
    assert row.used == Agent.objects.count()
