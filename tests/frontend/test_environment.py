"""Environment and versions on a job's page and in its report."""

import pytest
from django.test import Client

from controlplane.jobs.models import Job, Process
from frontend.queries.environment import environments, protection
from frontend.report import render_report
from tests.frontend.factories import attached_job, make_agents, make_job, make_processes

pytestmark = pytest.mark.django_db

ALIKE = {"paceline": "0.1.0", "python": "3.13.1", "torch": "2.9.0", "device": "cpu"}


def told_job() -> Job:
    job = make_job(environment={"paceline": "0.1.0", "python": "3.13.2"})
    make_processes(job, make_agents())
    for row in Process.objects.filter(job=job):
        torch = "2.8.1" if (row.role, row.index) == ("worker", 3) else "2.9.0"
        Process.objects.filter(pk=row.pk).update(environment={**ALIKE, "machine": f"m{row.index}", "torch": torch})
    return job


def test_processes_alike_share_a_line_and_another_version_is_reported_as_text() -> None:
    usual, odd = environments(told_job())
    assert usual.processes.startswith("w0, w1, w2")
    assert (usual.differs, usual.found["torch"]) == ("", "2.9.0")
    assert (odd.processes, odd.machines) == ("w3", "m3")
    assert odd.differs == "differs in torch: most have 2.9.0"


def test_the_page_the_api_and_the_report_tell_it(admin_client: Client) -> None:
    job = told_job()
    page = admin_client.get(f"/jobs/{job.pk}/?tab=logs").content.decode()
    for text in (page, render_report(job)):
        assert "differs in torch: most have 2.9.0" in text
        assert "Control plane at the start of the job: paceline 0.1.0 · python 3.13.2" in text
    assert admin_client.get(f"/api/v1/jobs/{job.pk}").json()["environment"] == job.environment
    workers = admin_client.get(f"/api/v1/jobs/{job.pk}/processes").json()["results"]
    assert (
        next(each for each in workers if (each["role"], each["index"]) == ("worker", 3))["environment"]["torch"]
        == "2.8.1"
    )


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (["TLS 1.3", "TLS 1.3"], "Parameters are sent encrypted (TLS 1.3)."),
        (["not encrypted: --insecure"] * 2, "Parameters are sent not encrypted: --insecure."),
        (
            ["TLS 1.3", "not encrypted: --insecure"],
            "Parameter transport differs between servers: s0: TLS 1.3; s1: not encrypted: --insecure.",
        ),
    ],
)
def test_the_page_tells_whether_parameters_are_encrypted(admin_client: Client, told: list[str], sentence: str) -> None:
    job = told_job()
    for index, network in enumerate(told):
        Process.objects.filter(job=job, role="server", index=index).update(environment={**ALIKE, "network": network})
    for tab in ("logs", "placement"):
        assert sentence in admin_client.get(f"/jobs/{job.pk}/?tab={tab}").content.decode()
    assert sentence in render_report(job)


def test_an_attached_job_names_what_sends_its_tensors() -> None:
    assert "script's own process group" in protection(attached_job())
