"""Evaluates a rule's condition on current data: one finding for each job, process or target. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from controlplane.alerts.rules import Rule
from controlplane.alerts.view import JobNow, View
from controlplane.core.states import JobState

MOST: Final = 200
"""Maximum number of simultaneous findings of a rule, the first by key."""

AT_WORK: Final = (JobState.RUNNING, JobState.FINISHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition that is true."""

    key: str
    """Identifies it among the findings of its rule."""
    summary: str
    value: float | None = None
    job: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None
    """When it happened, if known."""
    is_event: bool = False
    """Whether it is an event at time ``at`` rather than a lasting condition."""
    place: str = "decisions"
    """The tab of the job's page that shows it: ``timeline``, ``decisions``, ``logs``; for the control plane, a path."""
    decision: str = ""
    """The decision on which it is based, as ``incarnation-sequence``, if known."""


def findings(rule: Rule, view: View) -> list[Finding]:
    """All findings of the rule, by key."""
    found = (each for each in _CONDITIONS[rule.kind](rule, view) if _matches(rule.where, each.labels))
    return sorted(found, key=lambda each: each.key)[:MOST]


def _matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def _labels(job: JobNow, **more: str) -> dict[str, str]:
    return {**job.labels, "job": job.name, "user": job.user, **{name: text for name, text in more.items() if text}}


def _title(number: int, job: JobNow) -> str:
    return f"job {number} ({job.name})"


def _stalled(rule: Rule, view: View) -> Iterator[Finding]:
    after_s = rule.parameter("after_s")
    behind_s = view.plane.ingest_lag_s or 0.0  # later reports are not in the database yet
    hanging = {flag.job: flag.sentence for flag in view.flags if flag.kind == "hang"}
    for number, job in view.jobs.items():
        if job.last_report_at is None:
            continue
        silent_s = max(0.0, (view.now - job.last_report_at).total_seconds() - behind_s)
        if silent_s < after_s and number not in hanging:
            continue
        is_starting = job.state == JobState.STARTING
        why = hanging.get(number) or _silence(job, silent_s)
        where = "while starting" if is_starting else f"at iteration {job.iteration}"
        yield Finding(
            key=f"job-{number}",
            summary=f"{_title(number, job)} is stalled {where}: {why}",
            value=silent_s,
            job=number,
            labels=_labels(job),
            place="decisions" if is_starting else "timeline",
        )


def _silence(job: JobNow, silent_s: float) -> str:
    if job.state == JobState.STARTING:
        return f"it has been starting for {silent_s:,.0f} s" + (f", awaiting {job.awaited}" if job.awaited else "")
    paused = f"{job.reason}, " if job.state == JobState.PAUSED and job.reason else ""
    return f"{paused}no report for {silent_s:,.0f} s"


def _lost(rule: Rule, view: View) -> Iterator[Finding]:
    newest = {(each.job, each.title): each for each in sorted(view.losses, key=lambda each: each.at)}
    for (number, title), loss in newest.items():
        if (job := view.jobs.get(number)) is None:
            continue
        where = f" on {loss.machine}" if loss.machine else ""
        yield Finding(
            key=f"job-{number}-{title}",
            summary=f"{title} of {_title(number, job)}{where} was lost: {loss.reason or 'unknown reason'}",
            job=number,
            labels=_labels(job, worker=title, machine=loss.machine),
            at=loss.at,
        )


def _waiting(rule: Rule, view: View) -> Iterator[Finding]:
    above = rule.parameter("share")
    for number, job in view.jobs.items():
        share = job.waiting_share
        if job.state in AT_WORK and share is not None and share > above:
            summary = (
                f"workers of {_title(number, job)} wait for other workers {share:.0%} of the time, above {above:.0%}"
            )
            yield Finding(
                key=f"job-{number}", summary=summary, value=share, job=number, labels=_labels(job), place="timeline"
            )


def _straggler(rule: Rule, view: View) -> Iterator[Finding]:
    for flag in view.flags:
        job = view.jobs.get(flag.job)
        if job is None or flag.cost < rule.parameter("cost"):
            continue
        yield Finding(
            key=f"job-{flag.job}-{flag.title}-{flag.kind}",
            summary=f"{_title(flag.job, job)}: {flag.sentence}; it costs {flag.cost:.0%} of each iteration",
            value=flag.cost,
            job=flag.job,
            labels=_labels(job, worker=flag.title),
            place="timeline",
        )


def _checkpoint(rule: Rule, view: View) -> Iterator[Finding]:
    for each in view.skipped:
        if (job := view.jobs.get(each.job)) is not None:
            yield Finding(
                key=f"job-{each.job}-{each.decision}",
                summary=f"a checkpoint of {_title(each.job, job)} failed: {each.reason}",
                job=each.job,
                labels=_labels(job),
                at=each.at,
                is_event=True,
                decision=each.decision,
            )


def _not_finite(rule: Rule, view: View) -> Iterator[Finding]:
    for flag in view.flags:
        if flag.kind == "loss" and (job := view.jobs.get(flag.job)) is not None:
            yield Finding(
                key=f"job-{flag.job}-{flag.title}",
                summary=f"{_title(flag.job, job)}: {flag.sentence}",
                job=flag.job,
                labels=_labels(job, worker=flag.title),
            )
    for number, job in view.jobs.items():
        if job.has_diverged:
            summary = f"{_title(number, job)} failed: {job.reason}"
            yield _of_end(number, job, summary)


def _of_end(number: int, job: JobNow, summary: str) -> Finding:
    return Finding(
        key=f"job-{number}", summary=summary, job=number, labels=_labels(job), at=job.ended_at, is_event=True
    )


def _ended(state: JobState, word: str) -> Callable[[Rule, View], Iterator[Finding]]:
    def condition(rule: Rule, view: View) -> Iterator[Finding]:
        for number, job in view.jobs.items():
            if job.state == state and job.ended_at is not None:
                why = f": {job.reason}" if job.reason and state == JobState.FAILED else ""
                summary = f"{_title(number, job)} {word} after {job.iteration} iterations{why}"
                yield _of_end(number, job, summary)

    return condition


def _ingest(rule: Rule, view: View) -> Iterator[Finding]:
    plane = view.plane
    if plane.ingest_lag_s is not None and plane.ingest_lag_s > rule.parameter("after_s"):
        summary = plane.ingest_sentence or f"history is {plane.ingest_lag_s:,.0f} s behind the jobs' reports"
        yield Finding(key="plane", summary=summary, value=plane.ingest_lag_s, place="/system/")


def _disk(rule: Rule, view: View) -> Iterator[Finding]:
    plane = view.plane
    if plane.disk_free is not None and plane.disk_free < rule.parameter("free"):
        summary = (
            f"{plane.disk_free:.1%} of the disk with {plane.disk_path} is free ({plane.disk_free_bytes / 1e9:,.1f} GB):"
            " free disk space, or run manage.py prune"
        )
        yield Finding(key="plane", summary=summary, value=plane.disk_free, place="/system/")


def _redis(rule: Rule, view: View) -> Iterator[Finding]:
    plane = view.plane
    if plane.redis_used is not None and plane.redis_used > rule.parameter("used"):
        summary = plane.redis_sentence or f"Redis uses {plane.redis_used:.0%} of its memory limit"
        yield Finding(key="plane", summary=summary, value=plane.redis_used, place="/system/")


def _undelivered(rule: Rule, view: View) -> Iterator[Finding]:
    for target, error in view.plane.failing.items():
        yield Finding(
            key=f"target-{target}",
            summary=f"alerts cannot be delivered to {target}: {error}",
            labels={"target": target},
            place="/alerts/#deliveries",
        )


_CONDITIONS: Final[Mapping[str, Callable[[Rule, View], Iterator[Finding]]]] = {
    "job-stalled": _stalled,
    "worker-lost": _lost,
    "waiting": _waiting,
    "straggler": _straggler,
    "checkpoint-failed": _checkpoint,
    "loss-not-finite": _not_finite,
    "job-failed": _ended(JobState.FAILED, "failed"),
    "job-done": _ended(JobState.SUCCEEDED, "succeeded"),
    "ingest-behind": _ingest,
    "disk-filling": _disk,
    "redis-filling": _redis,
    "delivery-failed": _undelivered,
}
