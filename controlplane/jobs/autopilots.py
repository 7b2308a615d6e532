"""The state and decisions of a job's autopilot, read from its decisions."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec
from django.db.models import Count, Q

from controlplane.core.changes import AFTER_STOP
from controlplane.core.supervisors import ACTOR as AUTOPILOT
from controlplane.jobs.models import Decision, Job
from controlplane.protocol.spec import Choice

SHOWN: Final = 20
READ: Final = 200
"""Most decisions to read: the latest ones."""

KINDS: Final = ("play-alternatives", "judge-alternatives", "measure-switch", "set-autopilot", "change-policies")
"""The autopilot's decisions; also changes of policies, since any of them ends a proposal."""

_REQUESTED: Final = ", requested by "

_JUDGED: Final = Q(kind="judge-alternatives")
COUNTED: Final = {
    "stayed": _JUDGED & Q(payload__chosen=""),
    "proposed": _JUDGED & ~Q(payload__chosen="") & Q(payload__switches=False),
    "switched": _JUDGED & Q(payload__switches=True),
    "taken_back": Q(kind="measure-switch", payload__goes_back=True),
}
"""Outcomes of an autopilot's comparisons, by label of the metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The measured effect of a switch, in seconds per sample."""

    before_s: float
    after_s: float
    kept: bool
    goes_back: bool
    reason: str

    @property
    def gain(self) -> float:
        """Fraction of the time per sample that was saved; negative if a sample took longer."""
        return 1.0 - self.after_s / self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One comparison of the alternatives: the table, the choice, and its measured effect."""

    at: datetime
    iteration: int
    present: str
    chosen: str
    switches: bool
    reason: str
    choices: dict[str, Choice]
    rows: list[dict[str, Any]]
    measured: Effect | None

    @property
    def saved(self) -> float | None:
        """Fraction of the time that the chosen policies are predicted to save. They are not always the first row."""
        return next((float(row["saved"]) for row in self.rows if row["name"] == self.chosen), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopilot:
    """A job's autopilot as its page shows it."""

    mode: str
    state: str
    looks: list[Look]
    """The latest first."""
    proposed: Look | None
    """The current proposal, not applied yet."""

    @property
    def proposal(self) -> dict[str, Any]:
        """The body of ``PATCH jobs/N/policy`` that applies the proposal; empty if there is none."""
        return {} if self.proposed is None else {name: each.flat for name, each in self.proposed.choices.items()}


def job_autopilot(job: Job) -> Autopilot:
    """The autopilot of this job; its mode is empty if the job has none."""
    settings = job.spec.get("autopilot")
    if settings is None:
        return Autopilot(mode="", state="This job has no autopilot.", looks=[], proposed=None)
    latest = Decision.objects.filter(job=job, kind__in=KINDS).order_by("-incarnation", "-sequence")[:READ]
    looks: list[Look] = []
    mode, waits, proposed, measures = str(settings["mode"]), False, None, False
    for row in reversed(latest):
        if row.kind == "play-alternatives":
            waits = True
        elif row.kind == "judge-alternatives":
            waits, measures, look = False, False, _look(row)
            looks.append(look)
            proposed = look if look.chosen and not look.switches else None
        elif row.kind == "measure-switch":
            measures = False
            _attach(looks, row)
        elif row.kind == "set-autopilot":
            mode = str(row.payload["mode"])
        else:
            is_awaited = proposed is not None or (bool(looks) and looks[-1].switches and changed_by(row) == AUTOPILOT)
            measures = is_awaited and looks[-1].measured is None
            proposed = None
    if len(latest) == READ:  # the last of these rows may be older
        rows = Decision.objects.filter(job=job, kind="set-autopilot").order_by("-incarnation", "-sequence")
        mode = next((str(row.payload["mode"]) for row in rows[:1]), mode)
    state = _state(job, looks, mode=mode, waits=waits, measures=measures)
    return Autopilot(mode=mode, state=state, looks=looks[::-1][:SHOWN], proposed=None if job.is_over else proposed)


def changed_by(change: Decision) -> str:
    """The user who requested this change of policies, from its reason; empty if the reason names nobody."""
    return change.reason.removesuffix(AFTER_STOP).rpartition(_REQUESTED)[2] if _REQUESTED in change.reason else ""


def decision_counts(jobs: Collection[int]) -> dict[int, dict[str, int]]:
    """For each of these jobs with autopilot decisions: the number of decisions by outcome."""
    rows = Decision.objects.filter(job__in=jobs, kind__in=("judge-alternatives", "measure-switch"))
    counts = {name: Count("pk", filter=each) for name, each in COUNTED.items()}
    found = rows.order_by().values("job_id").annotate(**counts).values_list("job_id", *COUNTED)
    return {job: dict(zip(COUNTED, numbers, strict=True)) for job, *numbers in found}


def _look(row: Decision) -> Look:
    found = row.payload
    return Look(
        at=row.at,
        iteration=int(found["iteration"]),
        present=str(found["present"]),
        chosen=str(found["chosen"]),
        switches=bool(found["switches"]),
        reason=row.reason,
        choices=msgspec.convert(found.get("choices", {}), dict[str, Choice]),
        rows=list(found.get("rows", [])),
        measured=None,
    )


def _attach(looks: list[Look], row: Decision) -> None:
    """Add the measured effect to the last comparison that chose these policies."""
    found = row.payload
    effect = Effect(
        before_s=float(found["before_s"]),
        after_s=float(found["after_s"]),
        kept=bool(found["kept"]),
        goes_back=bool(found["goes_back"]),
        reason=row.reason,
    )
    for at in range(len(looks) - 1, -1, -1):
        if looks[at].chosen == found["name"]:
            looks[at] = replace(looks[at], measured=effect)
            return


def _state(job: Job, looks: list[Look], *, mode: str, waits: bool, measures: bool) -> str:
    """Its current activity, as a sentence."""
    if job.is_over:
        return f"The job is over; it was compared {len(looks)} times."
    if waits:
        return "It simulates the alternatives on what it has measured."
    if measures:
        return "It measures what the last switch has brought."
    if not looks:
        return "It measures the present policies; then it simulates the alternatives."
    verb = "switches" if mode == "auto" else "proposes to switch"
    return f"It watches how long a sample takes, compares again later, and {verb} where that saves more than the error."
