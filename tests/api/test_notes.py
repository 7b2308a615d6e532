"""Notes, tags and saved views over REST: the same rows, bounds and roles as on pages."""

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import AuditEntry, Job
from controlplane.people.teams import member_set, owner_set, team_create
from frontend.models import JobNote, JobTag, SavedView
from tests.api.conftest import refused
from tests.api.test_teams import client, person
from tests.frontend import factories
from tests.support.rows import submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


@pytest.fixture
def job() -> Job:
    return submitted_job(person("ann"))


def test_a_note_is_added_listed_and_deleted_by_its_author(job: Job) -> None:
    ann, path = client(User.objects.get(username="ann")), f"/api/v1/jobs/{job.pk}/notes"
    row = ann.post(path, {"text": "new data loader", "iteration": 40}, format="json")
    assert (row.status_code, row.json()["iteration"], row.json()["actor"]) == (201, 40, "ann")
    assert ann.post(path, {"text": "now"}, format="json").json()["iteration"] == job.iteration
    assert [each["text"] for each in ann.get(path).json()["results"]] == ["new data loader", "now"]
    bob, one = client(person("bob")), f"{path}/{row.json()['id']}"
    told = refused(bob.delete(one))
    assert (told["status"], told["detail"]) == (403, "this note is by ann: ask them or an admin to delete it")
    assert ann.delete(one).status_code == 204
    assert client(person("root", "admin")).delete(f"{path}/{JobNote.objects.get().pk}").status_code == 204
    actions = ["note-add", "note-add", "note-delete", "note-delete"]
    assert list(AuditEntry.objects.filter(action__startswith="note").values_list("action", flat=True)) == actions


def test_the_note_of_another_job_is_not_deleted_through_this_one(job: Job) -> None:
    ann = client(User.objects.get(username="ann"))
    other = submitted_job(User.objects.get(username="ann"))
    note = ann.post(f"/api/v1/jobs/{job.pk}/notes", {"text": "x"}, format="json").json()["id"]
    assert ann.delete(f"/api/v1/jobs/{other.pk}/notes/{note}").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": " "}, "text"),
        ({"text": "x" * 1001}, "text"),
        ({"text": "a", "iteration": -1}, "iteration"),
    ],
)
def test_a_note_that_is_none_is_refused_by_field(body: dict[str, object], field: str, job: Job) -> None:
    reply = client(User.objects.get(username="ann")).post(f"/api/v1/jobs/{job.pk}/notes", body, format="json")
    assert (reply.status_code, refused(reply)["field"]) == (400, field)
    assert not JobNote.objects.exists()


def test_a_team_s_admin_deletes_notes_of_others_and_members_read_them(job: Job) -> None:
    team = team_create(name="vision", actor="root")
    owner_set(row=job, team=team, actor="root")
    path, notes = f"/api/v1/jobs/{job.pk}/notes", {}
    for role in ("member", "operator", "admin"):
        user = person(f"team-{role}", "viewer")
        member_set(team=team, user=user, role=role, actor="root")
        notes[role] = client(user)
    row = notes["operator"].post(path, {"text": "mine"}, format="json").json()["id"]
    assert notes["member"].get(path).json()["count"] == 1
    assert notes["member"].post(path, {"text": "x"}, format="json").status_code == 403
    assert client(person("eve")).get(path).status_code == 404
    assert notes["admin"].delete(f"{path}/{row}").status_code == 204


def test_tags_are_read_set_and_jobs_found_by_them(job: Job) -> None:
    ann, path = client(User.objects.get(username="ann")), f"/api/v1/jobs/{job.pk}/tags"
    assert ann.put(path, {"tags": ["night", "a100", "night "]}, format="json").json() == {"tags": ["a100", "night"]}
    assert ann.get(path).json() == {"tags": ["a100", "night"]}
    submitted_job(User.objects.get(username="ann"))
    assert [each["id"] for each in ann.get("/api/v1/jobs?tag=night").json()["results"]] == [job.pk]
    assert ann.put(path, {"tags": []}, format="json").json() == {"tags": []}
    assert not JobTag.objects.exists()


@pytest.mark.parametrize("tags", [["a,b"], [" "], ["x" * 41], [f"t{at}" for at in range(13)], "night", ["a\x00"]])
def test_tags_that_are_none_are_refused(tags: object, job: Job) -> None:
    reply = client(User.objects.get(username="ann")).put(f"/api/v1/jobs/{job.pk}/tags", {"tags": tags}, format="json")
    assert (reply.status_code, refused(reply)["field"].partition(".")[0]) == (400, "tags")


def test_views_are_one_s_own(job: Job) -> None:
    ann, bob = client(User.objects.get(username="ann")), client(person("bob", "viewer"))
    row = ann.post("/api/v1/views", {"name": "mine", "address": "/jobs/?state=running"}, format="json")
    assert (row.status_code, row.json()["figure"]) == (201, "")
    assert [each["name"] for each in ann.get("/api/v1/views").json()["results"]] == ["mine"]
    assert bob.get("/api/v1/views").json()["count"] == 0
    assert bob.delete(f"/api/v1/views/{row.json()['id']}").status_code == 404
    assert ann.delete(f"/api/v1/views/{row.json()['id']}").status_code == 204
    assert not SavedView.objects.exists()


def test_a_chart_is_pinned_and_what_is_no_page_is_refused(job: Job) -> None:
    ann, shown = client(User.objects.get(username="ann")), factories.make_job()
    pin = {"name": "loss", "address": f"/jobs/{shown.pk}/", "figure": "batch-size"}
    assert ann.post("/api/v1/views", pin, format="json").json()["figure"] == "batch-size"
    for body, field in (
        ({"name": "x", "address": "https://elsewhere.example/"}, "address"),
        ({"name": "x", "address": f"/jobs/{shown.pk}/", "figure": "nothere"}, "figure"),
        ({"name": "", "address": "/jobs/"}, "name"),
    ):
        reply = ann.post("/api/v1/views", body, format="json")
        assert (reply.status_code, refused(reply)["field"]) == (400, field)
