"""Open flags of a job: raised once, closed once, each with its sentence."""

from typing import Any, Final

from controlplane.core.choices import Finding, Observation, Transfer
from controlplane.core.commands import CloseFlag, RaiseFlag
from controlplane.core.handling import Handling

LOOK_MS: Final = 20
"""How far apart the iterations are that a detector is shown, at least. A transient flag stands on three of them: three
that last for a few milliseconds each are nothing that an operator could do anything about, and on rough machines one
in 2,000 is flagged by chance (``bench stragglers``), which would be a flag in ten seconds."""


def look(handling: Handling, observations: list[Observation], transfers: list[Transfer]) -> None:
    """Show the detector what is complete now, unless it was shown something a moment ago."""
    job, policies = handling.job, handling.chosen
    if handling.now_ms - job.flags.shown_ms < LOOK_MS:
        return
    job.flags.shown_ms = handling.now_ms
    policies.detector_state, findings = policies.detector.observe(observations, policies.detector_state)
    record(handling, findings)
    if policies.server_detector is not None:
        policies.detector_state, findings = policies.server_detector.observe_servers(transfers, policies.detector_state)
        record(handling, findings)


def record(handling: Handling, findings: list[Finding]) -> None:
    """Raise or close what a detector found."""
    for finding in findings:
        if finding.open:
            _open(handling, finding)
        else:
            name = handling.job.flags.open.pop(key_of(finding.kind, finding.subject, finding.rank), None)
            if name is not None:
                handling.give(CloseFlag, finding.sentence, flag=name, escalated=finding.escalated)


def open_flag(
    handling: Handling, rank: int, kind: str, persistence: str, sentence: str, evidence: dict[str, Any]
) -> None:
    """Raise a worker's flag, unless it has one of that kind."""
    finding = Finding(rank=rank, kind=kind, open=True, sentence=sentence, persistence=persistence, evidence=evidence)
    _open(handling, finding)


def close_flag(handling: Handling, rank: int, kind: str, reason: str, *, subject: str = "worker") -> None:
    """Close the flag of that kind of that worker or server, if it is open."""
    name = handling.job.flags.open.pop(key_of(kind, subject, rank), None)
    if name is not None:
        handling.give(CloseFlag, reason, flag=name)


def close_all(handling: Handling, reason: str, *, rank: int | None = None) -> None:
    """Close every open flag, or every one of a worker."""
    for key, name in list(handling.job.flags.open.items()):
        if rank is None or key.endswith(f":worker:{rank}"):
            del handling.job.flags.open[key]
            handling.give(CloseFlag, reason, flag=name)


def key_of(kind: str, subject: str, rank: int) -> str:
    """What can be open once at a time."""
    return f"{kind}:{subject}:{rank}"


def _open(handling: Handling, finding: Finding) -> None:
    job = handling.job
    key = key_of(finding.kind, finding.subject, finding.rank)
    if key in job.flags.open:
        return
    job.flags.count += 1
    job.flags.open[key] = name = (
        f"{finding.kind}-{finding.subject[0]}{finding.rank}-{job.incarnation}.{job.flags.count}"
    )
    handling.give(
        RaiseFlag,
        finding.sentence,
        flag=name,
        rank=finding.rank,
        kind=finding.kind,
        persistence=finding.persistence,
        evidence=finding.evidence,
        subject=finding.subject,
    )
