"""Operations on jobs: submit, watch, control, end."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from paceline.client.calls import Raw, get, pages, post, read, request
from paceline.client.steps import Operation, Sleep
from paceline.client.types import Check, EngineRequest, Flat, Job, JobToken, Policy, Process
from paceline.errors import PacelineError, Refused

LOOK_S = 0.5
"""Polling interval of operations that wait."""
POLICY_ATTEMPTS = 5
"""How often a change of policy is retried if another client changed it at the same time."""

Spec = str | Mapping[str, Any]
"""A job as YAML or JSON, or as a mapping."""


def submit(spec: Spec, *, idempotency_key: str | None = None, team: str | None = None) -> Operation[Job]:
    """Submit a job. ``team``: its owner; by default the first team that the user joined, if any.

    Requests with the same key create one job; by default a key is generated.
    """
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    return read((yield from _send_spec("jobs", spec, team, headers)), Job)


def check(spec: Spec, *, team: str | None = None) -> Operation[Check]:
    """Return the spec with all its defaults, and what the job would wait for now; nothing is submitted."""
    return read((yield from _send_spec("jobs/check", spec, team, {})), Check)


def _send_spec(path: str, spec: Spec, team: str | None, headers: dict[str, str]) -> Raw:
    query = {"team": team} if team else {}
    if isinstance(spec, str):
        yaml = headers | {"Content-Type": "application/yaml"}
        return (yield from request("POST", path, query=query, body=spec.encode(), headers=yaml))
    return (yield from request("POST", path, query=query, body=dict(spec), headers=headers))


def job(number: int) -> Operation[Job]:
    """Return the current state of the job."""
    return get(Job, f"jobs/{number}")


def jobs(
    *,
    state: str | Sequence[str] = (),
    name: str | None = None,
    team: str | None = None,
    limit: int | None = None,
) -> Operation[list[Job]]:
    """List jobs, newest first: filtered by state, part of the name or team, at most ``limit``."""
    return pages(Job, "jobs", limit, state=[state] if isinstance(state, str) else state, name=name, team=team)


def moved(number: int, last: Job | None = None, *, every: float = LOOK_S) -> Operation[Job]:
    """Wait until the job differs from ``last``, and return it."""
    now = yield from job(number)
    while now == last:
        yield Sleep(every)
        now = yield from job(number)
    return now


def wait(number: int, *, seconds: float | None = None, every: float = LOOK_S) -> Operation[Job]:
    """Wait until the job is over, and return it.

    Raises:
        TimeoutError: if it is not over within this many seconds.
    """
    slept = 0.0
    while not (now := (yield from job(number))).is_over:
        if seconds is not None and slept >= seconds:
            raise TimeoutError(f"job {number}: found {now.state} after {seconds:g} s, expected it to be over by then")
        yield Sleep(every)
        slept += every
    return now


def stop(number: int, *, reason: str = "") -> Operation[Job]:
    """Stop the job; one that has no slots yet is cancelled."""
    return post(Job, f"jobs/{number}/actions/stop", {"reason": reason} if reason else None)


def pause(number: int) -> Operation[Job]:
    """Pause the job: every worker stops at its next iteration boundary."""
    return post(Job, f"jobs/{number}/actions/pause")


def resume(number: int) -> Operation[Job]:
    """Resume a paused job."""
    return post(Job, f"jobs/{number}/actions/resume")


def finish(number: int, *, exit_code: int, reason: str = "") -> Operation[Job]:
    """Report the exit code of an attached job's launcher, which ends the job: 0 is success."""
    return post(Job, f"jobs/{number}/actions/finish", {"exit_code": exit_code, "reason": reason})


def renew_lease(number: int) -> Operation[None]:
    """Report that the launcher of an attached job with ``lease_s`` is still running."""
    yield from request("POST", f"jobs/{number}/lease")


def prioritise(number: int, priority: int) -> Operation[Job]:
    """Give a job that waits for slots another priority in the queue: the highest starts first."""
    return read((yield from request("PATCH", f"jobs/{number}", body={"priority": priority})), Job)


def promote(number: int, predictor: str) -> Operation[Job]:
    """Promote a predictor: batch sizes are then computed from its predictions."""
    return post(Job, f"jobs/{number}/actions/promote", {"predictor": predictor})


def policy(number: int) -> Operation[Policy]:
    """Return the four policies of a job, and whether a change is pending."""
    reply = yield from request("GET", f"jobs/{number}/policy")
    return msgspec.structs.replace(read(reply, Policy), etag=reply.headers.get("etag", ""))


def change_policy(
    number: int,
    *,
    batching: str | Flat | None = None,
    barrier: str | Flat | None = None,
    placement: str | Flat | None = None,
    data: str | Flat | None = None,
    etag: str | None = None,
) -> Operation[Policy]:
    """Request other policies while the job runs, by name or with parameters.

    With an ``etag``, the change is made only if the policies have not changed since they were read. Without one, they
    are read now.
    """
    given = {"batching": batching, "barrier": barrier, "placement": placement, "data": data}
    choices = {question: choice for question, choice in given.items() if choice is not None}
    if not choices:
        raise PacelineError(f"change_policy: found nothing to change, expected one or more of {', '.join(given)}")
    tries = 1 if etag is not None else POLICY_ATTEMPTS
    while True:
        seen = etag if etag is not None else (yield from policy(number)).etag
        tries -= 1
        try:
            reply = yield from request("PATCH", f"jobs/{number}/policy", body=choices, headers={"If-Match": seen})
        except Refused as refusal:
            if refusal.status != 412 or not tries:
                raise
        else:
            return msgspec.structs.replace(read(reply, Policy), etag=reply.headers.get("etag", ""))


def processes(number: int) -> Operation[list[Process]]:
    """List all instances of all workers and servers of a job."""
    return pages(Process, f"jobs/{number}/processes", None)


def exclude_worker(number: int, rank: int) -> Operation[EngineRequest]:
    """Exclude a worker: it gets no shares until it is included again."""
    return post(EngineRequest, f"jobs/{number}/workers/{rank}/actions/exclude")


def include_worker(number: int, rank: int) -> Operation[EngineRequest]:
    """Include an excluded worker again."""
    return post(EngineRequest, f"jobs/{number}/workers/{rank}/actions/include")


def drain_worker(number: int, rank: int) -> Operation[EngineRequest]:
    """Drain a worker: it finishes its granted iterations and leaves."""
    return post(EngineRequest, f"jobs/{number}/workers/{rank}/actions/drain")


def requests(number: int) -> Operation[list[EngineRequest]]:
    """List recent requests of users to a job's engine, with the outcome of each; newest first."""
    return get(list[EngineRequest], f"jobs/{number}/requests")


def new_job_token(number: int, *, grace_s: float = 0.0) -> Operation[JobToken]:
    """Create another token for the ranks of an attached job; older ones expire after this many seconds."""
    return post(JobToken, f"jobs/{number}/token", {"grace_s": grace_s})


def revoke_job_tokens(number: int) -> Operation[None]:
    """Revoke all tokens of an attached job."""
    yield from request("DELETE", f"jobs/{number}/token")
