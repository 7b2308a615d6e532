"""Open flags of a job: raised once, closed once, each with its sentence."""

from typing import Any

from controlplane.core.choices import Finding
from controlplane.core.commands import CloseFlag, RaiseFlag
from controlplane.core.handling import Handling


def record(handling: Handling, findings: list[Finding]) -> None:
    """Raise or close what a detector found."""
    for finding in findings:
        if finding.open:
            open_flag(handling, finding.rank, finding.kind, finding.persistence, finding.sentence, finding.evidence)
        else:
            close_flag(handling, finding.rank, finding.kind, finding.sentence)


def open_flag(
    handling: Handling, rank: int, kind: str, persistence: str, sentence: str, evidence: dict[str, Any]
) -> None:
    """Raise a flag, unless that worker has one of that kind."""
    job = handling.job
    key = f"{kind}:{rank}"
    if key in job.flags:
        return
    job.flag_count += 1
    job.flags[key] = name = f"{kind}-w{rank}-{job.incarnation}.{job.flag_count}"
    handling.give(RaiseFlag, sentence, flag=name, rank=rank, kind=kind, persistence=persistence, evidence=evidence)


def close_flag(handling: Handling, rank: int, kind: str, reason: str) -> None:
    """Close that worker's flag of that kind, if it is open."""
    name = handling.job.flags.pop(f"{kind}:{rank}", None)
    if name is not None:
        handling.give(CloseFlag, reason, flag=name)


def close_all(handling: Handling, reason: str, *, rank: int | None = None) -> None:
    """Close every open flag, or every one of a worker."""
    for key, name in list(handling.job.flags.items()):
        if rank is None or key.endswith(f":{rank}"):
            del handling.job.flags[key]
            handling.give(CloseFlag, reason, flag=name)
