"""Bodies that are too large are refused before they are received."""

import json
from typing import Any

import pytest

from controlplane.api import limits
from controlplane.api.limits import OPEN_BYTES, SPEC_BYTES, USUAL_BYTES, BodyLimit, most_bytes, too_large
from controlplane.api.models_store import MAX_MODEL_BYTES
from tests.api.conftest import problem

SENTENCE = too_large(SPEC_BYTES)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads all of the body before it answers."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def call(path: str, chunks: list[bytes], *, method: str = "POST", length: int | None = None) -> tuple[int, Any]:
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    parts.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(length).encode())] if length is not None else []
    await BodyLimit(reading)({"path": path, "method": method, "headers": headers}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_an_announced_body_is_refused_unread() -> None:
    assert await call("/api/v1/jobs", [], length=SPEC_BYTES + 1) == (413, problem(413, SENTENCE))


async def test_a_body_that_announces_nothing_is_counted() -> None:
    assert await call("/api/v1/jobs", [b"x" * 500_000] * 3) == (413, problem(413, SENTENCE))
    assert await call("/api/v1/jobs", [b"x" * 500_000] * 2) == (200, {})


async def test_only_a_worker_with_its_key_may_send_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []

    def allowed(job: int, authorization: str) -> bool:
        asked.append((job, authorization))
        return job == 7

    monkeypatch.setattr(limits, "upload_allowed", allowed)
    large = {"method": "PUT", "length": MAX_MODEL_BYTES}
    found = [(await call(f"/api/v1/jobs/{job}/model", [], **large))[0] for job in (7, 8)]
    assert (found, asked) == ([200, 413], [(7, ""), (8, "")])
    assert (await call("/api/v1/jobs/7/model", [], method="POST", length=MAX_MODEL_BYTES))[0] == 413


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/api/v1/agents/enrol", OPEN_BYTES),
        ("/login/", OPEN_BYTES),
        ("/login/once/abc/", OPEN_BYTES),
        ("/admin/login/", OPEN_BYTES),
        ("/api/v1/jobs", SPEC_BYTES),
        ("/api/v1/jobs/check", SPEC_BYTES),
        ("/api/v1/jobs\n", USUAL_BYTES),
        ("/api/v1/jobs/7/policy", USUAL_BYTES),
        ("/logout/", USUAL_BYTES),
        ("/", USUAL_BYTES),
    ],
)
async def test_each_address_has_its_limit(path: str, most: int) -> None:
    assert most_bytes(path) == most
    assert await call(path, [], length=most + 1) == (413, problem(413, too_large(most)))
    assert await call(path, [b"x" * most]) == (200, {})


async def test_a_length_of_many_digits_is_no_number() -> None:
    assert await call("/", [b"x" * (USUAL_BYTES + 1)], length=10**50) == (413, problem(413, too_large(USUAL_BYTES)))
