"""Finds stragglers among workers and servers, and says on what evidence: the detector of DESIGN section 5.

- Compute, communication and waiting are kept apart: in a synchronous job the workers that wait are the fast ones, so
  waiting is never held against anybody. Compute is compared per sample (``units``), communication as it is, a server by
  the median of what its workers measured.
- Relative and individual: slow by the others' measure, or by its own past where the others did not change (``panel``).
- Transient and lasting: a median over the window and most of its iterations, or three on end far off
  (``verdict``). A transient flag that becomes lasting is closed and opened again as such.
- Shares do not hide a slow machine: a flag is a finding about a machine, separate from what is done about it; the
  sentence says what it costs now, which may be nothing.
- A flag closes by itself when the window is good, or when there is nothing left to compare.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from controlplane.core.choices import Finding, Observation, Transfer
from controlplane.policies.parameters import EvidenceParameters
from controlplane.policies.stragglers import guard, panel, telling, verdict
from controlplane.policies.stragglers.causes import Readings, read
from controlplane.policies.stragglers.guard import GuardState
from controlplane.policies.stragglers.panel import Panel, Row, Rows, Worth
from controlplane.policies.stragglers.telling import Situation, Subject
from controlplane.policies.stragglers.verdict import Standing
from controlplane.protocol.base import Value

Kind = Literal["compute", "communication"]

SERVER_FIXED_PART = 0.1
"""Part of a usual exchange that is taken not to depend on its size: latency makes no server with little slow."""

MUCH_WAITING = 0.25
"""Part of an iteration spent waiting from which on a worker is one that waits: others hold it up, not it them."""


class EvidenceState(Value, frozen=True, kw_only=True):
    """What was measured of whom in the latest iterations."""

    compute: Panel = Panel()
    communication: Panel = Panel()
    servers: Panel = Panel()
    readings: dict[int, Readings] = {}
    guard: GuardState = GuardState()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Vectorised over workers: a thousand cost about as much as ten."""

    name: ClassVar[str] = "evidence"
    state_type: ClassVar[type[msgspec.Struct]] = EvidenceState

    parameters: EvidenceParameters

    def start(self) -> EvidenceState:
        """Nobody was seen."""
        return EvidenceState()

    def observe(self, observations: Sequence[Observation], state: EvidenceState) -> tuple[EvidenceState, list[Finding]]:
        """Add one iteration of the workers: flags that open or close by it."""
        measured = {seen.rank: seen for seen in _comparable(observations)}
        if not measured:
            return state, []
        seen = [measured[rank] for rank in sorted(measured)]
        readings = read(state.readings, seen)
        waits = frozenset(one.rank for one in seen if one.waiting_s > MUCH_WAITING * (one.busy_s + one.waiting_s))
        situation = Situation(busy_s={one.rank: one.busy_s for one in seen}, readings=readings, waits=waits)
        compute, found = self._follow(state.compute, self._compute(seen), "compute", "worker", situation)
        communication, more = self._follow(
            state.communication, _communication(seen), "communication", "worker", situation
        )
        watched, warning = guard.watch(seen, state.guard, iterations=self.parameters.guard)
        known = set(compute.ranks) | set(communication.ranks)
        after = msgspec.structs.replace(
            state,
            compute=compute,
            communication=communication,
            readings={rank: readings[rank] for rank in sorted(readings) if rank in known},
            guard=watched,
        )
        return after, [*found, *more, *warning]

    def observe_servers(
        self, transfers: Sequence[Transfer], state: EvidenceState
    ) -> tuple[EvidenceState, list[Finding]]:
        """Add one iteration of the workers' exchanges with the servers."""
        row = _servers(transfers)
        if not row.seconds:
            return state, []
        situation = Situation(busy_s=row.seconds, readings={})
        servers, found = self._follow(state.servers, row, "communication", "server", situation)
        return msgspec.structs.replace(state, servers=servers), found

    def standing(self, subject: Subject, kind: Kind, rank: int, state: EvidenceState) -> tuple[Standing, str]:
        """What can be said now about one of them, and the sentence: also that there is not enough evidence."""
        of = state.servers if subject == "server" else state.compute if kind == "compute" else state.communication
        if rank not in of.ranks:
            return Standing.UNCLEAR, telling.unclear(subject, rank, 0, self.parameters.window)
        rows = panel.unpack(of, self._kept)
        column = rows.ranks.index(rank)
        measured = verdict.measured(rows, column)
        stands = verdict.standings(rows, self.parameters)[column]
        if rank in of.open:
            return Standing(of.open[rank]), telling.stands(
                subject, rank, kind, verdict.figures(rows, column, self.parameters)
            )
        if stands is Standing.UNCLEAR:
            return stands, telling.unclear(subject, rank, measured, self.parameters.window)
        return stands, telling.stands(subject, rank, kind, verdict.figures(rows, column, self.parameters))

    @property
    def _kept(self) -> int:
        return self.parameters.window

    def _compute(self, seen: Sequence[Observation]) -> Row:
        """Per sample, but for a part of the usual time that does not depend on the share."""
        usual = statistics.fmean(one.samples for one in seen)
        fixed = self.parameters.fixed_part
        return Row(
            seconds={one.rank: one.compute_s for one in seen},
            units={one.rank: fixed * usual + (1 - fixed) * one.samples for one in seen},
            iteration_s=_iteration_s(seen),
        )

    def _follow(
        self, before: Panel, row: Row, kind: Kind, subject: Subject, situation: Situation
    ) -> tuple[Panel, list[Finding]]:
        """The panel with one more row, and the flags that this opens and closes."""
        worth = Worth(part=self.parameters.minimum_part, least_s=self.parameters.minimum_s)
        rows = panel.extend(panel.unpack(before, self._kept), row, before.open, worth)
        rows, gone = panel.drop_unseen(rows)
        flags = dict(before.open)
        findings: list[Finding] = []
        for rank in [rank for rank in gone if rank in flags]:
            del flags[rank]
            findings.append(telling.forgotten(subject, rank, kind, self.parameters.window))
        stands = verdict.standings(rows, self.parameters, situation.waits)
        for column, rank in enumerate(rows.ranks):
            if rank in flags or stands[column] in (Standing.LASTING, Standing.TRANSIENT):
                findings += self._judge(rows, column, stands[column], flags, kind, subject, situation)
        return panel.pack(rows, flags), findings

    def _judge(
        self,
        rows: Rows,
        column: int,
        stands: Standing,
        flags: dict[int, str],
        kind: Kind,
        subject: Subject,
        situation: Situation,
    ) -> list[Finding]:
        rank = rows.ranks[column]
        is_open = flags.get(rank)
        slow = stands in (Standing.LASTING, Standing.TRANSIENT)
        shown = verdict.figures(rows, column, self.parameters, stands) if verdict.measured(rows, column) else None
        if is_open and not slow and (shown is None or verdict.has_recovered(rows, column, self.parameters)):
            del flags[rank]
            return [telling.closing(subject, rank, kind, shown)]
        if shown is None or not slow or is_open == stands or is_open == Standing.LASTING:
            return []
        flags[rank] = str(stands)
        opened = telling.opening(subject, rank, kind, stands, shown, situation)
        return [telling.lasts(subject, rank, kind), opened] if is_open else [opened]


def _comparable(observations: Sequence[Observation]) -> list[Observation]:
    """Those that say something about speed: with samples, and with finite times."""
    return [
        seen
        for seen in observations
        if seen.samples > 0 and math.isfinite(seen.busy_s + seen.waiting_s) and seen.compute_s > 0
    ]


def _communication(seen: Sequence[Observation]) -> Row:
    """Every worker moves the same parameters."""
    return Row(
        seconds={one.rank: one.communication_s for one in seen},
        units={one.rank: 1.0 for one in seen},
        iteration_s=_iteration_s(seen),
    )


def _iteration_s(seen: Sequence[Observation]) -> dict[int, float]:
    return {one.rank: one.busy_s + one.waiting_s for one in seen}


def _servers(transfers: Sequence[Transfer]) -> Row:
    """The median over the workers, so that one slow link makes no slow server; probes say nothing about load."""
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
        seconds=seconds,
        units={server: SERVER_FIXED_PART * usual + (1 - SERVER_FIXED_PART) * size for server, size in held.items()},
        iteration_s=dict.fromkeys(seconds, longest),
    )
