"""The API from the outside: what commands need of it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any

import httpx
from django.contrib.auth.models import Group, User
from knox.models import AuthToken

from controlplane.jobs.roles import Role

SERVICE_USER = "command-line"
POLL_S = 0.5


class Unreachable(Exception):
    """Nobody answers at that address, or what answers is no control plane."""


class Refused(Exception):
    """The control plane said no: ``problem`` is its problem document."""

    def __init__(self, problem: dict[str, Any]) -> None:
        self.problem = problem
        super().__init__(problem.get("detail", "refused without a reason"))


class Client:
    """A session with one control plane."""

    def __init__(self, url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/", headers=headers, timeout=30.0, transport=transport, trust_env=False
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(self, document: str, *, idempotency_key: str) -> dict[str, Any]:
        """Submit a job written in YAML or JSON, which is YAML too; the job."""
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": idempotency_key}
        return self._call("POST", "jobs", content=document.encode(), headers=headers)

    def job(self, number: int) -> dict[str, Any]:
        """The job as it is now."""
        return self._call("GET", f"jobs/{number}")

    def watch(self, number: int, *, poll_s: float = POLL_S) -> Iterator[dict[str, Any]]:
        """The job whenever it has moved, until it is over."""
        last: dict[str, Any] | None = None
        while last is None or not last["is_over"]:
            if last is not None:
                time.sleep(poll_s)
            job = self.job(number)
            if job != last:
                yield job
            last = job

    def metrics(self, number: int, names: Sequence[str], *, since: int = 0, points: int = 500) -> dict[str, Any]:
        """Series of the job, from iteration ``since`` on, with at most so many points each."""
        return self._call("GET", f"jobs/{number}/metrics", params={"metric": names, "since": since, "points": points})

    def agents(self) -> list[dict[str, Any]]:
        """Machines, the first page of them."""
        return list(self._call("GET", "agents")["results"])

    def invite(self, name: str = "") -> dict[str, Any]:
        """A single-use token with which one machine can join: that of this name, or any that is new."""
        return self._call("POST", "agents/enrolment-tokens", json={"name": name})

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            reply = self._http.request(method, path, **options)
            body = reply.json()
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.url}: does not answer ({error})") from None
        except ValueError:
            raise Unreachable(
                f"{self.url}: what answers there is no control plane (status {reply.status_code})"
            ) from None
        if reply.is_error:
            raise Refused(body)
        return dict(body)


@contextmanager
def local_token(lifetime: timedelta = timedelta(days=7)) -> Iterator[str]:
    """A token of the operator ``command-line``, for as long as it is used: whoever can run this holds the database."""
    user, created = User.objects.get_or_create(username=SERVICE_USER)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    user.groups.add(Group.objects.get_or_create(name=Role.OPERATOR)[0])
    row, token = AuthToken.objects.create(user=user, expiry=lifetime)
    try:
        yield token
    finally:
        row.delete()
