"""Executes requests about a worker, server or flag of a running job.

Requests that are invalid by the database are rejected immediately; otherwise the engine responds with a decision.
"""

from http import HTTPStatus

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.api.problems import Problem
from controlplane.api.steering import UserRequest, ask, check_state
from controlplane.core.events import DrainRequested, ExclusionRequested, InclusionRequested, ServerRequested
from controlplane.core.states import JobState
from controlplane.jobs import flag_notes, requests, services
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.stored_specs import stored_spec

LIVE = (JobState.RUNNING, JobState.PAUSED)


def exclude_worker(*, job: Job, rank: int, user: User) -> requests.Request:
    """Request that a worker is stopped and gets no shares until it is included again.

    Raises:
        Problem: if the job does not run, has no such worker or no other one, or Redis does not answer.
    """
    _check_worker(job, rank, is_removed=True)
    return _request(job, user, "worker-exclude", f"w{rank}", ExclusionRequested(actor=user.get_username(), rank=rank))


def include_worker(*, job: Job, rank: int, user: User) -> requests.Request:
    """Request that a worker is included again.

    Raises:
        Problem: as above.
    """
    _check_worker(job, rank)
    return _request(job, user, "worker-include", f"w{rank}", InclusionRequested(actor=user.get_username(), rank=rank))


def drain_worker(*, job: Job, rank: int, user: User) -> requests.Request:
    """Request that a worker finishes its iteration and leaves.

    Raises:
        Problem: as above.
    """
    _check_worker(job, rank, is_removed=True)
    event = DrainRequested(actor=user.get_username(), role="worker", index=rank)
    return _request(job, user, "worker-drain", f"w{rank}", event)


def add_server(*, job: Job, user: User) -> requests.Request:
    """Request one more server.

    Raises:
        Problem: if the job does not run or has no servers at all, or Redis does not answer.
    """
    _check_servers(job)
    return _request(job, user, "server-add", "", ServerRequested(actor=user.get_username()))


def drain_server(*, job: Job, index: int, user: User) -> requests.Request:
    """Request that a server hands over its blocks and leaves.

    Raises:
        Problem: as above, or if there is no such server.
    """
    _check_servers(job)
    if not Process.objects.filter(job=job, role="server", index=index, ended_at=None).exists():
        raise Problem(HTTPStatus.NOT_FOUND, f"{job} has no running server s{index}")
    event = DrainRequested(actor=user.get_username(), role="server", index=index)
    return _request(job, user, "server-drain", f"s{index}", event)


@transaction.atomic
def acknowledge_flag(*, flag: Flag, user: User) -> None:
    """Record that a user has seen the flag."""
    flag_notes.flag_acknowledge(flag=flag, actor=user.get_username())
    _audit_flag(flag, user, "flag-acknowledge", {})


@transaction.atomic
def mute_flag(*, flag: Flag, minutes: int, user: User) -> None:
    """Mute findings of this kind about its subject for this many minutes; 0: unmute."""
    until = flag_notes.mute_end(timezone.now(), minutes) if minutes else None
    flag_notes.flag_mute(flag=flag, actor=user.get_username(), until=until)
    detail = {"until": until.isoformat(timespec="seconds")} if until else {}
    _audit_flag(flag, user, "flag-mute" if until else "flag-unmute", detail)


def _audit_flag(flag: Flag, user: User, action: str, detail: dict[str, str]) -> None:
    full_detail = {"flag": flag.key, "about": flag.title, **detail}
    services.audit(actor=user.get_username(), action=action, subject=str(flag.job), detail=full_detail, job=flag.job)


def _request(job: Job, user: User, action: str, process: str, event: UserRequest) -> requests.Request:
    detail = {"process": process} if process else {}
    audited = ask(job, event, f"changed ({action.replace('-', ' ')})", action=action, detail=detail)
    return requests.request_of(job, audited)


def _check_worker(job: Job, rank: int, *, is_removed: bool = False) -> None:
    check_state(job, "given other workers", LIVE)
    spec = stored_spec(job)
    if rank >= spec.workers:
        raise Problem(HTTPStatus.NOT_FOUND, f"{job} has no worker w{rank}: it has w0 to w{spec.workers - 1}")
    least = spec.elastic.minimum_workers or 1
    if is_removed and spec.workers - 1 < least:
        raise Problem(HTTPStatus.CONFLICT, f"{job} needs at least {least} of its {spec.workers} workers")


def _check_servers(job: Job) -> None:
    if stored_spec(job).reduces:
        raise Problem(
            HTTPStatus.CONFLICT, f"{job} is an all-reduce job: it has no servers, workers hold the parameters"
        )
    check_state(job, "given other servers", (JobState.RUNNING,))
