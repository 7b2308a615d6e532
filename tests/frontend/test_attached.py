"""Pages of attached jobs: what a native job's have, who the ranks are, and what is not there with the reason."""

import html
import re

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.core.states import JobState
from controlplane.jobs.models import Job, JobToken
from controlplane.jobs.tokens import token_issue, verdict_on
from frontend.queries.acknowledgements import acknowledgements
from frontend.queries.effects import effects
from frontend.queries.in_force import in_force
from frontend.queries.job import decisions
from frontend.queries.waiting import ledger
from frontend.tabs import TABS
from tests.frontend import factories
from tests.telemetry.reports import change_reports

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, path
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


@pytest.mark.parametrize("name", TABS)
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUCCEEDED])
def test_every_tab_is_there(operator: Client, name: str, state: JobState) -> None:
    job = factories.attached_job(state=state)
    page = text_of(operator, f"/jobs/{job.pk}/?tab={name}")
    assert "resnet" in page
    assert "Attached" in page
    assert operator.get(f"/jobs/{job.pk}/live/?tab={name}").status_code == 200


def test_a_job_without_a_rank_waits_for_ranks(viewer: Client) -> None:
    job = factories.make_job(
        state=JobState.STARTING, name="mine", spec=factories.attached_job().spec, launch="attached"
    )
    Job.objects.filter(pk=job.pk).update(
        awaited="ranks, none of which is connected: start the script with paceline run"
    )
    page = text_of(viewer, f"/jobs/{job.pk}/")
    assert "waiting for ranks" in page
    assert "Waiting for: ranks, none of which is connected: start the script with paceline run" in page
    assert "waiting for ranks" in text_of(viewer, "/jobs/")
    assert "paceline run -- torchrun train.py" in text_of(viewer, f"/jobs/{job.pk}/?tab=processes")


def test_the_page_shows_the_command_that_agents_start(operator: Client) -> None:
    spec = factories.attached_job().spec | {"command": ["python", "train.py", "--data", "a b"]}
    job = factories.make_job(state=JobState.STARTING, name="mine", spec=spec, launch="attached")
    page = text_of(operator, f"/jobs/{job.pk}/?tab=processes")
    assert "Agents start python train.py --data 'a b' , one process per rank." in page
    assert "Agents start the script once its slots are reserved" in page
    assert "Rotate token" not in page
    assert "4 workers" in page
    other = factories.attached_job()
    assert "one process per rank" not in text_of(operator, f"/jobs/{other.pk}/?tab=processes")


def test_a_warm_up_with_equal_shares_is_no_comparison(viewer: Client) -> None:
    """Before iteration 16 a script's iterations are long for other reasons than its shares."""
    short, long = factories.attached_job(agreed=6), factories.attached_job(agreed=12)
    assert "with equal shares (estimated)" in text_of(viewer, f"/jobs/{short.pk}/")
    assert "(at most, estimated)" in text_of(viewer, f"/jobs/{short.pk}/")
    assert "estimated" not in text_of(viewer, f"/jobs/{long.pk}/")


def test_its_head_reports_whose_loop_it_is(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.attached_job().pk}/")
    assert (
        "custom training loop \N{MIDDLE DOT} 4 workers, no servers: the script's own backend transfers the tensors"
        in page
    )


def test_each_rank_is_shown_with_its_machine_device_launcher_and_pid(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.attached_job().pk}/?tab=processes")
    assert re.search(r"w3 rank ready .* gpu-1 cuda:1, NVIDIA L4 torchrun 4003 23 60", page)


def test_ranks_are_not_offered_what_only_their_launcher_can_do(operator: Client) -> None:
    job = factories.attached_job()
    factories.make_flag(job)
    page = operator.get(f"/jobs/{job.pk}/?tab=processes").content.decode()
    assert not re.search(r'id="(drain|exclude|include)-w', page)
    assert 'id="exclude-flag' not in operator.get(f"/jobs/{job.pk}/").content.decode()
    assert 'id="duplicate"' not in page
    assert 'name="batching"' in page
    assert 'name="barrier"' not in page


def test_that_there_are_no_servers_is_explained(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.attached_job().pk}/?tab=placement")
    assert "No servers: this job is attached, and the script's own backend" in page


def test_equal_environments_are_shown_once(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.attached_job().pk}/?tab=logs")
    assert "4000" not in page
    assert "0.9.0" in page


def test_an_operator_rotates_the_token_and_sees_it_once(operator: Client) -> None:
    job = factories.attached_job()
    first = token_issue(job=job, actor="ann")
    assert "Created by ann" in text_of(operator, f"/jobs/{job.pk}/?tab=processes")
    answer = operator.post(f"/jobs/{job.pk}/token/", {"grace_s": "60"}).content.decode()
    (token,) = re.findall(r"PACELINE_TOKEN=(\S+?)<", answer)
    assert verdict_on(token, job.pk).good
    assert verdict_on(first, job.pk).good
    assert token not in operator.get(f"/jobs/{job.pk}/?tab=processes").content.decode()
    operator.post(f"/jobs/{job.pk}/token/", {"grace_s": "0"})
    assert not verdict_on(first, job.pk).good


def test_a_viewer_rotates_nothing(viewer: Client) -> None:
    job = factories.attached_job()
    assert viewer.post(f"/jobs/{job.pk}/token/").status_code == 403
    page = viewer.get(f"/jobs/{job.pk}/?tab=processes").content.decode()
    assert 'id="rotate-token"' not in page
    assert not JobToken.objects.exists()


@pytest.mark.parametrize(("over", "told"), [(True, "The job has ended"), (False, "has no token for ranks")])
def test_what_has_no_token_reports_it(operator: Client, over: bool, told: str) -> None:
    job = factories.attached_job(state=JobState.FAILED) if over else factories.demo_job()
    assert told in operator.post(f"/jobs/{job.pk}/token/").content.decode()


def test_the_form_reports_how_to_attach_a_script_instead(operator: Client) -> None:
    page = text_of(operator, "/jobs/new/")
    assert "Attach a training script instead" in page
    assert "-- torchrun --nproc-per-node 4 train.py" in page


def test_a_decision_holds_from_where_the_ranks_took_its_shares() -> None:
    job = factories.attached_job(agreed=6)
    rows = {row.sequence: row for row in job.decisions.all()}
    held = in_force(job, list(rows.values()))
    assert held == {rows[2].pk: 0, rows[3].pk: 16}
    effect = effects(job, list(rows.values()))[rows[3].pk]
    assert effect.before_s == pytest.approx(0.264)
    assert effect.after_s == pytest.approx(0.1018, abs=0.001)
    taken = acknowledgements(job, list(rows.values()))[rows[3].pk]
    assert (taken.received, taken.missing, taken.deviating) == (4, (), ())


def test_a_native_decision_names_its_iteration_itself() -> None:
    job = factories.demo_job()
    assert in_force(job, list(job.decisions.all())) == {}


def test_what_changed_last_is_reported_with_what_the_shares_led_to_once_they_held(viewer: Client) -> None:
    page = text_of(viewer, f"/jobs/{factories.attached_job().pk}/")
    assert "iterations 264 ms \N{RIGHTWARDS ARROW} 102 ms" in page
    assert "2.59\N{MULTIPLICATION SIGN} as fast, from iteration 16 on" in page


def test_before_its_ranks_are_here_no_one_knows_how_many_they_are(viewer: Client) -> None:
    job = factories.attached_job()
    Job.objects.filter(pk=job.pk).update(generation=0)
    assert "as many ranks as its launcher starts" in text_of(viewer, f"/jobs/{job.pk}/")


def test_rows_of_the_map_name_the_machines_of_ranks(viewer: Client) -> None:
    assert "w3 \N{MIDDLE DOT} gpu-1" in text_of(viewer, f"/jobs/{factories.attached_job().pk}/?tab=heatmap")


def test_its_decisions_show_their_effect() -> None:
    job = factories.attached_job()
    lines = decisions(job, kinds="shares")
    assert lines[0].effect is not None
    assert lines[0].effect.gain == pytest.approx(0.61, abs=0.02)


def test_two_attached_jobs_are_compared_like_native_ones(viewer: Client) -> None:
    soon, late = factories.attached_job(), factories.attached_job(agreed=40)
    page = text_of(viewer, f"/compare/?jobs={soon.pk},{late.pk}")
    assert "Iteration time, mean 141 ms 236 ms +67%" in page
    assert "Time lost to waiting 24.0% 45.1% +88%" in page
    assert "None: these jobs have the same spec" in page


def test_an_attached_job_has_its_part_of_the_cost_of_waiting(viewer: Client) -> None:
    job, now = factories.attached_job(), timezone.now()
    change_reports(lambda row: {"at": now})
    Job.objects.filter(pk=job.pk).update(started_at=now)
    (row,) = ledger(now.date()).jobs
    assert (row.job.pk, row.spent.waiting_s) == (job.pk, pytest.approx(job.waiting_s))
    assert row.spent.share == pytest.approx(0.247, abs=0.001)
    assert "resnet" in text_of(viewer, "/waiting/")
