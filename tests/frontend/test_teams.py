"""Pages of teams and quotas: who sees which, what is offered to whom, and the numbers on them."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.shares import team_shares
from controlplane.people.models import Team, TeamUsage
from controlplane.people.quotas import quota_set
from controlplane.people.teams import member_set, owner_set, team_create
from controlplane.scheduling.fair_share import Share
from controlplane.telemetry.simulations import simulation_submit
from frontend.queries.teams import Meter, fair_share, team_lines
from tests.api.conftest import refused
from tests.api.test_teams import client, person
from tests.support.rows import online_agent, submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


@pytest.fixture
def vision() -> Team:
    """With a member, an operator, an admin, and something of each kind."""
    team = team_create(name="vision", weight=2.0, actor="root")
    for role in ("member", "operator", "admin"):
        member_set(team=team, user=person(f"team-{role}", "viewer"), role=role, actor="root")
    bob = person("bob")
    owner_set(row=submitted_job(bob, name="ours"), team=team, actor="root")
    submitted_job(bob, name="public")
    owner_set(row=online_agent("m1"), team=team, actor="root")
    online_agent("unowned")
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=bob, team=team)
    person("root", "admin")
    return team


def page(name: str, path: str, status: int = 200) -> str:
    browser = Client()
    browser.force_login(User.objects.get(username=name))
    reply = browser.get(path)
    assert reply.status_code == status
    return reply.content.decode()


def test_a_team_has_a_page_for_its_members_and_admins_only(vision: Team) -> None:
    path = f"/teams/{vision.pk}/"
    for name in ("team-member", "team-operator", "team-admin", "root"):
        body = page(name, path)
        for shown in ("ours", "m1", "demo", "team-member", "operator"):
            assert shown in body
        assert ("public" in body, "unowned" in body) == (False, name == "root")
    page("bob", path, 404)
    page("bob", f"{path}live/", 404)
    assert "vision" not in page("bob", "/teams/")


def test_each_is_offered_what_the_role_permits(vision: Team) -> None:
    path, offered = f"/teams/{vision.pk}/", {}
    members, whole = ("member-new", "member-dialog"), ("team-weight", "team-limits", "machine-give", "team-delete")
    for name in ("team-member", "team-operator", "team-admin", "root"):
        body = page(name, path)
        offered[name] = [all(f'id="{each}"' in body for each in kind) for kind in (members, whole)]
    assert offered == {
        "team-member": [False, False],
        "team-operator": [False, False],
        "team-admin": [True, False],
        "root": [True, True],
    }
    assert ('id="team-new"' in page("root", "/teams/"), 'id="team-new"' in page("team-admin", "/teams/")) == (
        True,
        False,
    )


def test_quotas_are_shown_with_what_is_used(vision: Team) -> None:
    quota_set(team=vision, actor="root", jobs=1, simulations=4)
    body = page("team-member", f"/teams/{vision.pk}/")
    assert "<strong>1 of 1</strong>" in body
    assert ">used up<" in body
    assert "<strong>1 of 4</strong>" in body
    quota_set(user=User.objects.get(username="bob"), actor="root", jobs=1)
    listed = page("root", "/teams/")
    assert ("Limits of user bob" in listed, "above the limit" in listed, "<strong>2 of 1</strong>" in listed) == (
        True,
        True,
        True,
    )
    assert ("Your quota" in page("bob", "/teams/"), "bob" in page("team-admin", "/teams/")) == (True, False)
    quota_set(actor="root", stored_bytes=2 * 10**9)
    assert "2 GB" in page("root", "/teams/")


def test_the_page_reports_what_is_due_to_a_team_and_what_it_had(vision: Team) -> None:
    for team, seconds in ((vision, 300.0), (None, 100.0)):
        TeamUsage.objects.create(team=team, slot_seconds=seconds, at=timezone.now())
    body = page("team-member", f"/teams/{vision.pk}/")
    assert "<strong>75%</strong>" in body
    assert "<strong>67%</strong>" in body
    assert "1 of 2 come first" in body
    assert "75%, fair share 67%" in page("team-member", "/teams/")


def test_turns_follow_usage_for_weight() -> None:
    shares = {0: Share(weight=1.0, used=10.0), 1: Share(weight=10.0, used=50.0), 2: Share(weight=1.0, used=0.0)}
    assert [fair_share(team, shares).place for team in (0, 1, 2)] == [3, 2, 1]
    assert sum(fair_share(team, shares).due for team in shares) == pytest.approx(1)
    assert sum(fair_share(team, shares).had for team in shares) == pytest.approx(1)
    assert fair_share(0, {0: Share()}).had == 0


def test_a_team_that_is_made_while_the_list_is_read_is_in_it(vision: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def shares_and_then_another_team() -> dict[int, Share]:
        shares = team_shares()
        Team.objects.create(name="late", weight=2.0)
        return shares

    monkeypatch.setattr("frontend.queries.teams.team_shares", shares_and_then_another_team)
    _, lines = team_lines(User.objects.get(username="root"), 1)
    assert [(line.team.name, line.share.had) for line in lines] == [("late", 0.0)], "first by name"


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [(9, 10, "near"), (8, 10, ""), (11, 10, "over"), (10, 10, "full"), (0, 0, "full"), (5, None, "")],
)
def test_a_meter_reports_when_a_limit_is_near(used: int, limit: int | None, level: str) -> None:
    assert Meter(name="jobs", title="Jobs", about="", used=used, limit=limit).level == level


def test_a_team_of_many_jobs_links_to_the_list(vision: Team) -> None:
    bob = User.objects.get(username="bob")
    for _ in range(26):
        owner_set(row=submitted_job(bob), team=vision, actor="root")
    body = page("root", f"/teams/{vision.pk}/")
    assert ("All 27 jobs" in body, body.count("release-job-")) == (True, 25)
    assert Job.objects.filter(team=vision).count() == 27


def test_the_empty_list_is_a_sentence(db: None) -> None:
    person("root", "admin"), person("eve")
    assert "No teams yet." in page("root", "/teams/")
    assert "You are not in a team." in page("eve", "/teams/")


def test_a_name_that_no_address_can_hold_is_refused(vision: Team) -> None:
    root = client(User.objects.get(username="root"))
    told = refused(root.post("/api/v1/teams", {"name": "a/b"}, format="json"))
    assert (told["status"], told["field"], told["expected"]) == (400, "name", "expected a name without /")
    number = root.post("/api/v1/teams", {"name": "a b?#%"}, format="json").json()["id"]
    address = re.search(
        r'id="team-limits" data-opens="quota-dialog" data-url="(.*?)"', page("root", f"/teams/{number}/")
    )
    assert address is not None
    assert root.put(address[1], {"jobs": 3}, format="json").json()["limits"]["jobs"] == 3


def test_the_queue_shows_quotas_in_units_that_a_person_uses(vision: Team) -> None:
    quota_set(team=vision, actor="root", jobs=1_000, stored_bytes=10**10)
    body = page("team-member", "/queue/")
    assert "1 of 1,000" in body
    assert "0 B of 10 GB" in body
