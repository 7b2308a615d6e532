"""Quotas of users: what is refused beyond them, and what a job says that waits for one."""

import pytest

from controlplane.jobs.models import Job
from controlplane.people.quotas import BUILT_IN, quota_set
from tests.api.conftest import refused
from tests.api.test_scheduling import running_job
from tests.api.test_teams import client, person
from tests.support.rows import SPEC, online_agent, submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


@pytest.mark.parametrize(
    ("limits", "field", "found"),
    [({"jobs": 1}, "quota.jobs", 2), ({"workers": 3}, "quota.workers", 4), ({"slots": 2}, "quota.slots", 3)],
)
def test_a_job_beyond_a_quota_is_refused_with_subject_found_limit_and_cure(
    limits: dict[str, int], field: str, found: int
) -> None:
    ann = person("ann")
    asks = client(ann)
    assert asks.post("/api/v1/jobs", SPEC, format="json").status_code == 202
    quota_set(user=ann, actor="root", **limits)
    told = refused(asks.post("/api/v1/jobs", SPEC, format="json"))
    [limit] = limits.values()
    assert (told["status"], told["field"], told["found"], told["expected"]) == (409, field, found, f"at most {limit}")
    assert told["detail"].startswith(f"the quota of user ann is {limit} ")
    assert told["detail"].endswith("N)")
    assert refused(asks.post("/api/v1/jobs/check", SPEC, format="json"))["field"] == field
    assert Job.objects.count() == 1


def test_a_repeated_submission_is_not_counted_against_a_quota() -> None:
    ann = person("ann")
    quota_set(user=ann, actor="root", jobs=1)
    asks = client(ann)
    replies = [asks.post("/api/v1/jobs", SPEC, format="json", HTTP_IDEMPOTENCY_KEY="k") for _ in range(2)]
    assert [reply.status_code for reply in replies] == [202, 202]


def test_a_default_quota_counts_for_users_without_one() -> None:
    quota_set(actor="root", jobs=0)
    ann = person("ann")
    assert refused(client(ann).post("/api/v1/jobs", SPEC, format="json"))["field"] == "quota.jobs"
    quota_set(user=ann, actor="root", jobs=5)
    assert client(ann).post("/api/v1/jobs", SPEC, format="json").status_code == 202


def test_a_user_has_a_thousand_unfinished_jobs_unless_an_admin_allows_more() -> None:
    ann = person("ann")
    asks = client(ann)
    limits = asks.get("/api/v1/quotas").json()[0]["limits"]
    assert {name: most for name, most in limits.items() if most is not None} == BUILT_IN
    one = submitted_job(ann)
    Job.objects.bulk_create(Job(name="sweep", spec=one.spec, submitted_by=ann) for _ in range(BUILT_IN["jobs"] - 1))
    assert refused(asks.post("/api/v1/jobs", SPEC, format="json"))["field"] == "quota.jobs"
    quota_set(actor="root", jobs=None)
    assert asks.post("/api/v1/jobs", SPEC, format="json").status_code == 202


def test_another_limit_leaves_the_built_in_ones() -> None:
    ann = person("ann")
    quota_set(user=ann, actor="root", workers=64)
    limits = client(ann).get("/api/v1/quotas").json()[0]["limits"]
    assert (limits["workers"], limits["jobs"], limits["simulations"]) == (64, 1_000, 20)


def test_a_job_whose_stored_spec_names_no_workers_stops_no_quota() -> None:
    """An earlier release may have stored it."""
    ann = person("ann")
    quota_set(user=ann, actor="root", workers=4)
    Job.objects.filter(pk=submitted_job(ann).pk).update(spec={"name": "old"})
    asks = client(ann)
    assert asks.get("/api/v1/quotas").json()[0]["used"]["workers"] == 0
    assert asks.post("/api/v1/jobs", SPEC, format="json").status_code == 202
    assert asks.get("/api/v1/quotas").json()[0]["used"]["workers"] == SPEC["workers"]


def test_a_job_that_waits_for_a_quota_reports_it() -> None:
    online_agent("m1", slots=8, server_slots=4)
    ann = person("ann")
    running = running_job()
    Job.objects.filter(pk=running.pk).update(submitted_by=ann)
    waits = submitted_job(ann)
    quota_set(user=ann, actor="root", slots=4)
    sentence = client(ann).get(f"/api/v1/jobs/{waits.pk}").json()["waiting"]["sentence"]
    assert sentence.startswith(
        "needs 2 worker slots and 1 server slot, and the quota of slots of user ann leaves fewer"
    )
