"""Reads the evidence of a flag: the decision that raised it, the numbers, its cost, and the actions since."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.jobs.models import Decision, Flag, Job
from controlplane.policies.stragglers.explanations import is_quiet
from controlplane.telemetry.present_costs import present_costs, present_evidence
from frontend import formats

MOST: Final = 8
"""Number of leading findings in a list whose actions are looked up."""

MEASURES: Final = {"others": "the others' median", "own": "its own usual time"}
SECONDS: Final = {
    "busy_s": "Busy time per iteration",
    "iteration_s": "Iteration time",
    "without_s": "Iteration time without it",
}
SHOWN_ELSEWHERE: Final = frozenset(
    {"ratio", "measure", "slow_iterations", "window", "confidence", "cause", "cost_s", *SECONDS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A decision, by its position in the log."""

    incarnation: int
    sequence: int

    @property
    def before(self) -> int:
        """The value of ``before`` in the URL with which the log starts at this decision."""
        return self.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number that supports a finding."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The change of a flagged worker's share since the flag, and the decision that made it."""

    before: int
    after: int
    decision: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of one flag."""

    raised: Reference | None
    facts: tuple[Fact, ...]
    cost: str
    """Its current cost as a clause, or the cost at its opening once it is closed; empty if not known."""
    is_quiet: bool
    """Whether it has no current impact and needs no attention."""
    since: Since | None
    """None if the share has not changed."""
    left_out: Reference | None


def evidence_of(job: Job, flags: Sequence[Flag]) -> dict[int, Evidence]:
    """Evidence by the flags' primary keys."""
    if not flags:
        return {}
    keys = [flag.key for flag in flags]
    rows = Decision.objects.filter(job=job, kind__in=("raise-flag", "close-flag"), payload__flag__in=keys)
    named = {(row.kind, row.payload["flag"]): row for row in rows}
    found, costs = {}, present_costs(flags)
    for place, flag in enumerate(flags):
        raised, closed = named.get(("raise-flag", flag.key)), named.get(("close-flag", flag.key))
        followed = raised is not None and flag.subject == "worker" and place < MOST
        found[flag.pk] = Evidence(
            raised=_reference(raised),
            facts=tuple(facts(flag.evidence)),
            cost=cost(present_evidence(flag, costs), subject=flag.subject),
            is_quiet=is_quiet(present_evidence(flag, costs)),
            since=_since(job, flag.rank, raised, closed) if raised is not None and followed else None,
            left_out=_left_out(job, flag.rank, raised, closed) if raised is not None and followed else None,
        )
    return found


def facts(evidence: Mapping[str, Any]) -> list[Fact]:
    """The numbers as text with units; unknown numbers are shown unformatted."""
    found = []
    if "ratio" in evidence:
        against = MEASURES.get(evidence.get("measure", ""), "the usual time")
        found.append(Fact(name="Slowdown", text=f"{formats.significant(evidence['ratio'])} times {against}"))
    if "window" in evidence:
        raised = f"in {evidence.get('slow_iterations', '?')} of the last {evidence['window']} iterations"
        found.append(Fact(name="Frequency", text=raised))
    if "confidence" in evidence:
        found.append(Fact(name="Confidence", text=formats.percent(evidence["confidence"], 1)))
    if evidence.get("cause"):
        found.append(Fact(name="Cause", text=str(evidence["cause"])))
    found += [
        Fact(name=name, text=formats.milliseconds(evidence[key])) for key, name in SECONDS.items() if key in evidence
    ]
    rest = sorted(evidence.keys() - SHOWN_ELSEWHERE)
    return found + [Fact(name=key.replace("_", " ").capitalize(), text=_plain(evidence[key])) for key in rest]


def cost(evidence: Mapping[str, Any], *, subject: str = "worker") -> str:
    """``costs 276 ms per iteration: 2.35 times as fast without it``; for a server, per exchange.

    A cost within noise is reported as no impact, as in the finding's sentence.
    """
    costs, whole, without = (evidence.get(key) for key in ("cost_s", "iteration_s", "without_s"))
    if costs is None or not whole or not without:
        return ""
    if is_quiet(evidence):
        return "no current impact"
    what = "iteration" if subject == "worker" else "exchange with servers"
    faster = formats.significant(whole / without)
    return f"costs {formats.milliseconds(costs)} per {what}: {faster} times as fast without it"


def _plain(value: Any) -> str:
    return formats.significant(value) if isinstance(value, float) else str(value)


def _reference(row: Decision | None) -> Reference | None:
    return None if row is None else Reference(incarnation=row.incarnation, sequence=row.sequence)


def _since(job: Job, rank: int, raised: Decision, closed: Decision | None) -> Since | None:
    """The share when it was flagged, and the current share, or the share when the flag was closed."""
    shares = Decision.objects.filter(job=job, kind="set-shares").order_by("-sequence")
    until = shares.filter(sequence__lte=closed.sequence) if closed is not None else shares
    before, after = shares.filter(sequence__lt=raised.sequence).first(), until.first()
    if before is None or after is None or after.sequence < raised.sequence:
        return None
    was, now = before.payload.get("shares", {}).get(str(rank)), after.payload.get("shares", {}).get(str(rank))
    reference = _reference(after)
    if was is None or now is None or was == now or reference is None:
        return None
    return Since(before=was, after=now, decision=reference)


def _left_out(job: Job, rank: int, raised: Decision, closed: Decision | None) -> Reference | None:
    rows = Decision.objects.filter(job=job, kind="leave-out", payload__rank=rank, sequence__gt=raised.sequence)
    if closed is not None:
        rows = rows.filter(sequence__lte=closed.sequence)
    return _reference(rows.order_by("sequence").first())
