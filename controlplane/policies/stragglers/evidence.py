"""Finds stragglers among workers and servers, with evidence: the detector of DESIGN section 5.

- Compute, communication and waiting are separate: in a synchronous job the fast workers wait, so
  waiting never counts against a worker. Compute time is compared per sample (``units``), communication time as it
  is, a server by the median of its workers' measurements.
- Relative and individual: slow compared with the others, or with its own past if the others did not change (``panel``).
- Lasting and transient: the median over the window and most of its iterations are slow, or three iterations in a row
  are far off (``verdict``). A transient flag that becomes lasting is closed and opened again as a lasting one.
- Shares do not hide a slow machine: a flag is a finding about a machine, separate from what is done about it; the
sentence states its present cost, which may be none.
- A flag closes when the window is good, or when there is nothing left to compare.
"""

import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from controlplane.core.choices import Finding, Observation, Transfer
from controlplane.policies.catalogue.stragglers import EvidenceParameters
from controlplane.policies.stragglers import even_shares, explanations, panel, verdict
from controlplane.policies.stragglers.causes import Readings, read
from controlplane.policies.stragglers.even_shares import EvenShares
from controlplane.policies.stragglers.explanations import Situation, Subject
from controlplane.policies.stragglers.measuring import Row, Worth
from controlplane.policies.stragglers.panel import Column, Panel
from controlplane.policies.stragglers.verdict import Persistence
from controlplane.protocol.base import Value

Kind = Literal["compute", "communication"]

SERVER_FIXED_PART = 0.1
"""Fraction of a usual exchange that is assumed not to depend on its size, so that latency does not make a server with
few bytes look slow.
"""


class EvidenceState(Value, frozen=True, kw_only=True):
    """Measurements of each worker and server in the latest iterations."""

    compute: Panel = Panel()
    communication: Panel = Panel()
    servers: Panel = Panel()
    readings: Readings = Readings()
    guard: EvenShares = EvenShares()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Costs microseconds per worker and iteration: only those that may be slow are examined in detail."""

    name: ClassVar[str] = "evidence"
    state_type: ClassVar[type[msgspec.Struct]] = EvidenceState

    parameters: EvidenceParameters

    def start(self) -> EvidenceState:
        """A state without workers."""
        return EvidenceState()

    def observe(self, observations: Sequence[Observation], state: EvidenceState) -> tuple[EvidenceState, list[Finding]]:
        """Add one iteration of the workers; returns the flags that it opens or closes."""
        seen = _comparable(observations)
        if not seen:
            return state, []
        ranks = [one.rank for one in seen]
        busy_s, waiting_s = [one.compute_s + one.communication_s for one in seen], [one.waiting_s for one in seen]
        readings = read(state.readings, ranks, cpu=[one.cpu for one in seen], memory=[one.memory for one in seen])
        situation = Situation(ranks=ranks, busy_s=busy_s, waiting_s=waiting_s, readings=readings)
        iteration_s = [busy + waiting for busy, waiting in zip(busy_s, waiting_s, strict=True)]
        row = Row(
            ranks=ranks,
            seconds=[one.compute_s for one in seen],
            units=self._units([one.samples for one in seen]),
            iteration_s=iteration_s,
        )
        compute, found = self._follow(state.compute, row, "compute", "worker", situation)
        # Every worker moves the same parameters.
        row = Row(
            ranks=ranks,
            seconds=[one.communication_s for one in seen],
            units=[1.0] * len(seen),
            iteration_s=iteration_s,
        )
        communication, more = self._follow(state.communication, row, "communication", "worker", situation)
        watched, warning = even_shares.watch(seen, state.guard, iterations=self.parameters.guard)
        known = compute.ranks
        if communication.ranks and communication.ranks != known:
            known = sorted({*known, *communication.ranks})
        after = EvidenceState(
            compute=compute,
            communication=communication,
            servers=state.servers,
            readings=readings.for_ranks(known),
            guard=watched,
        )
        return after, [*found, *more, *warning]

    def observe_servers(
        self, transfers: Sequence[Transfer], state: EvidenceState
    ) -> tuple[EvidenceState, list[Finding]]:
        """Add one iteration of the workers' exchanges with the servers; returns the flags that it opens or closes."""
        row = _servers(transfers)
        if not row.ranks:
            return state, []
        situation = Situation(ranks=row.ranks, busy_s=row.seconds, waiting_s=[0.0] * len(row.ranks))
        servers, found = self._follow(state.servers, row, "communication", "server", situation)
        return msgspec.structs.replace(state, servers=servers), found

    def persistence_of(self, subject: Subject, kind: Kind, rank: int, state: EvidenceState) -> tuple[Persistence, str]:
        """The present verdict about one worker or server, with the sentence; also if there is not enough evidence."""
        of = state.servers if subject == "server" else state.compute if kind == "compute" else state.communication
        if rank not in of.ranks:
            return Persistence.UNCLEAR, explanations.unclear(subject, rank, 0, self.parameters.window)
        column = panel.column_of(of, panel.place(of, rank))
        persistence = verdict.persistence_of(column, self.parameters)
        if rank not in of.open and persistence is Persistence.UNCLEAR:
            return persistence, explanations.unclear(subject, rank, verdict.measured(column), self.parameters.window)
        sentence = explanations.finding(subject, rank, kind, verdict.figures(column, self.parameters))
        return Persistence(of.open.get(rank, persistence)), sentence

    def _units(self, samples: list[int]) -> list[float]:
        """Samples plus a constant that stands for the time that does not depend on the share."""
        fixed = self.parameters.fixed_part
        usual, each = fixed * sum(samples) / len(samples), 1 - fixed
        return [usual + each * count for count in samples]

    def _follow(
        self, before: Panel, row: Row, kind: Kind, subject: Subject, situation: Situation
    ) -> tuple[Panel, list[Finding]]:
        """Add a row to the panel; returns the panel and the flags that the row opens and closes."""
        worth = Worth(part=self.parameters.minimum_part, least_s=self.parameters.minimum_s)
        after, gone = panel.extend(before, row, worth, self.parameters.window)
        flags = dict(before.open)
        findings: list[Finding] = []
        for rank in gone:
            if rank in flags:
                del flags[rank]
                findings.append(explanations.forgotten(subject, rank, kind, self.parameters.window))
        columns = set(panel.raised(after, verdict.lowest_bar(self.parameters))) if after.ranks else set()
        columns.update(panel.place(after, rank) for rank in flags)
        for column in sorted(columns):
            findings += self._judge(
                after.ranks[column], panel.column_of(after, column), flags, kind, subject, situation
            )
        return (after if flags == after.open else msgspec.structs.replace(after, open=flags)), findings

    def _judge(
        self,
        rank: int,
        column: Column,
        flags: dict[int, str],
        kind: Kind,
        subject: Subject,
        situation: Situation,
    ) -> list[Finding]:
        persistence = verdict.persistence_of(column, self.parameters, waits=situation.waits(rank))
        is_open = flags.get(rank)
        slow = persistence in (Persistence.LASTING, Persistence.TRANSIENT)
        is_measured = verdict.measured(column) > 0
        if is_open and not slow and (not is_measured or verdict.has_recovered(column, self.parameters)):
            del flags[rank]
            shown = verdict.figures(column, self.parameters, persistence) if is_measured else None
            return [explanations.closing(subject, rank, kind, shown)]
        if not is_measured or not slow or is_open == persistence or is_open == Persistence.LASTING:
            return []
        flags[rank] = str(persistence)
        shown = verdict.figures(column, self.parameters, persistence)
        opened = explanations.opening(subject, rank, kind, persistence, shown, situation)
        return [explanations.lasts(subject, rank, kind), opened] if is_open else [opened]


def _comparable(observations: Sequence[Observation]) -> list[Observation]:
    """Observations with samples and finite times: one per worker, by rank."""
    comparable = [
        seen
        for seen in observations
        if seen.samples > 0
        and seen.compute_s > 0
        and math.isfinite(seen.compute_s + seen.communication_s + seen.waiting_s)
    ]
    ranks = [seen.rank for seen in comparable]
    if any(map(operator.ge, ranks, ranks[1:])):
        by_rank = {seen.rank: seen for seen in comparable}
        return [by_rank[rank] for rank in sorted(by_rank)]
    return comparable


def _servers(transfers: Sequence[Transfer]) -> Row:
    """By server the median over the workers, so that one slow link does not make a server slow; without probes."""
    times: dict[int, list[float]] = {}
    sizes: dict[int, list[int]] = {}
    for seen in transfers:
        if not seen.is_probe and seen.bytes > 0 and 0 < seen.seconds < float("inf"):
            times.setdefault(seen.server, []).append(seen.seconds)
            sizes.setdefault(seen.server, []).append(seen.bytes)
    seconds = {server: statistics.median(times[server]) for server in sorted(times)}
    held: Mapping[int, float] = {server: statistics.median(sizes[server]) for server in sorted(sizes)}
    usual = statistics.fmean(held.values()) if held else 0.0
    longest = max(seconds.values(), default=0.0)
    return Row(
        ranks=list(seconds),
        seconds=list(seconds.values()),
        units=[SERVER_FIXED_PART * usual + (1 - SERVER_FIXED_PART) * size for size in held.values()],
        iteration_s=[longest] * len(seconds),
    )
