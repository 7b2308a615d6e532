"""The trained parameters: stored by a worker of the job, downloaded by people."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient
from rest_framework.test import APIClient

from controlplane.api import models_store
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.sealing import unseal
from controlplane.people.quotas import quota_set
from controlplane.protocol.keys import process_key
from tests.api.conftest import problem, refused
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(settings: Any, tmp_path: Path) -> Job:
    settings.DATA_DIR = tmp_path
    return submitted_job(User.objects.create_user("ada"))


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def shown(job: Job, *, role: Any = "worker", index: int = 0, instance: str = "0-a:b", name: str = "") -> str:
    key = process_key(unseal(job.key), role, index, instance).hex()
    return f"Process {name or f'{role}:{index}:{instance}'}:{key}"


def put(client: APIClient, job: Job, body: bytes, authorization: str) -> Any:
    headers = {"Authorization": authorization}
    return client.put(f"/api/v1/jobs/{job.pk}/model", body, content_type="application/octet-stream", headers=headers)


def test_what_a_worker_stores_people_download(anybody: APIClient, viewer: APIClient, job: Job, tmp_path: Path) -> None:
    body = npz(weight=np.arange(6, dtype=np.float32).reshape(2, 3), bias=np.zeros(2, dtype=np.float32))
    stored = put(anybody, job, body, shown(job))
    assert (stored.status_code, stored.json()) == (200, {"job": job.pk, "bytes": len(body)})
    reply = viewer.get(f"/api/v1/jobs/{job.pk}/model")
    assert (b"".join(reply.streaming_content), reply["Content-Length"], reply["Content-Disposition"]) == (
        body,
        str(len(body)),
        f'attachment; filename="job-{job.pk}.npz"',
    )
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{job.pk}.npz"]
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.action, entry.detail) == (
        "Process worker:0:0-a:b",
        "job-model-store",
        {"bytes": len(body)},
    )
    assert viewer.get(f"/api/v1/jobs/{job.pk}").json()["model_bytes"] == len(body)


def test_a_model_beyond_the_quota_of_its_owner_is_refused_and_not_kept(
    anybody: APIClient, job: Job, tmp_path: Path
) -> None:
    """Quotas of stored bytes are checked when a job is submitted and again when its model comes."""
    body = npz(weight=np.zeros(100, dtype=np.float32))
    Job.objects.filter(pk=submitted_job(job.submitted_by).pk).update(model_bytes=1_000)
    quota_set(user=job.submitted_by, actor="root", stored_bytes=1_000 + len(body) - 1)
    told = refused(put(anybody, job, body, shown(job)))
    assert (told["status"], told["field"], told["found"]) == (409, "quota.stored_bytes", 1_000 + len(body))
    assert list((tmp_path / "models").iterdir()) == []
    quota_set(user=job.submitted_by, actor="root", stored_bytes=1_000 + len(body))
    for _ in range(2):  # the second replaces the first, and is not counted beside it
        assert put(anybody, job, body, shown(job)).status_code == 200


@pytest.mark.django_db(transaction=True)
async def test_the_web_process_streams_it_without_blocking(async_client: AsyncClient, job: Job, tmp_path: Path) -> None:
    user = await User.objects.acreate(username="root", is_superuser=True)
    await async_client.aforce_login(user)
    (tmp_path / "m.npz").write_bytes(b"x" * 2_500_000)
    await Job.objects.filter(pk=job.pk).aupdate(model_path=str(tmp_path / "m.npz"))
    reply = await async_client.get(f"/api/v1/jobs/{job.pk}/model")
    assert [len(chunk) async for chunk in reply] == [1_048_576, 1_048_576, 402_848]
    await sync_to_async(connections.close_all)()  # that thread's own connection would outlive the test database


def test_a_job_without_a_model_reports_it(viewer: APIClient, job: Job) -> None:
    sentence = f"job {job.pk} (digits) has no model: the model is stored when a job succeeds"
    assert refused(viewer.get(f"/api/v1/jobs/{job.pk}/model")) == problem(404, sentence)


def test_only_a_worker_of_this_very_job_may_store(anybody: APIClient, admin: APIClient, job: Job) -> None:
    other = submitted_job(User.objects.get(username="ada"))
    good = shown(job)
    for wrong in (
        shown(other),
        shown(job, role="server"),
        shown(job, index=1, name="worker:0:0-a:b"),
        good[:-2] + "00",
        good[:-1],
        "Process worker:x:a:00",
        "Process",
        "",
    ):
        reply = put(anybody, job, npz(a=np.zeros(1)), wrong)
        assert (reply.status_code, reply["WWW-Authenticate"], refused(reply)["detail"]) == (
            401,
            "Process",
            "storing a model requires: Authorization: Process worker:<rank>:<instance>:<hex key>",
        )
    assert admin.put(f"/api/v1/jobs/{job.pk}/model", b"x", content_type="application/octet-stream").status_code == 401
    job.refresh_from_db()
    assert job.model_path == ""


def foreign_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("run.sh", "rm -rf /")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"no zip", "the body is not a numpy .npz file: not a zip archive"),
        (foreign_zip(), "the body must be a numpy .npz of arrays of numbers: 'run.sh' is none"),
        (
            npz(a=np.array([{"x": 1}], dtype=object)),
            "the body must be a numpy .npz of arrays of numbers: 'a.npy' is none",
        ),
        (npz(), "the body must be a numpy .npz of arrays of numbers: it is empty"),
        (b"", "the body is not a numpy .npz file: not a zip archive"),
    ],
)
def test_what_is_no_model_leaves_nothing_behind(
    anybody: APIClient, job: Job, tmp_path: Path, body: bytes, sentence: str
) -> None:
    assert refused(put(anybody, job, body, shown(job))) == problem(400, sentence)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_model_that_is_too_large_is_refused_and_the_old_one_stays(
    anybody: APIClient, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = npz(a=np.zeros(4))
    put(anybody, job, body, shown(job))
    monkeypatch.setattr(models_store, "MAX_MODEL_BYTES", 1000)
    reply = put(anybody, job, npz(a=np.zeros(400)), shown(job))
    sentence = "the model exceeds the limit of 1000 bytes"
    assert refused(reply) == problem(413, sentence)
    assert [path.read_bytes() for path in (tmp_path / "models").iterdir()] == [body]
