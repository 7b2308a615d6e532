"""A worker straggles if it is lastingly slower than the others: a first detector, of compute and communication.

What counts as slow, in one iteration and in one respect (``scoring``):

- it took at least ``slow`` (1.5) times the median of the *others* (leave-one-out, so that in a small job the
  straggler does not lift what it is measured by), and
- the time that it lost by this is worth speaking of: 10 % of its iteration and 1 ms.

A flag opens when 8 of the last 10 iterations were slow. It closes by itself when 8 of the last 10 were good, for which
the bars are lower (1.25 times, half the loss), so that a worker that wavers around one bar does not make the flag
flicker. A spike, however high, is one iteration and never a flag. An iteration with fewer than three measured
workers is no evidence: of two that differ nobody can say which one is out of the ordinary. A worker not compared
for 10 iterations is forgotten, and its flag closed.

**Shares do not hide a slow machine.** Compute is scored per sample. In a BSP job with equal shares this is the ratio of
times. Under LB-BSP a slow machine has few samples and ends with the others, and its flag stays open: a flag is a
finding about a machine, separate from what is done about it, and the operator wants to know which machine to repair.
The sentence and the evidence say which of the two it is: that the others wait for it, or that its smaller share keeps
them from waiting. (Per sample is fair where compute is proportional to the share, LB-BSP section 3.2.1. With a fixed
cost per iteration a small share looks slower per sample than it is; LB-BSP gives one only to a worker that measured
slower, and between equal machines shares settle even, so a fixed cost alone raises no lasting flag.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.choices import Finding, Observation
from controlplane.policies.parameters import RelativeParameters
from controlplane.policies.stragglers.scoring import Kind, Score, comparable, score
from controlplane.policies.stragglers.sentences import closing, forgotten, opening
from controlplane.protocol.base import Value

KINDS: tuple[Kind, ...] = ("compute", "communication")


class Track(Value, frozen=True, kw_only=True):
    """The latest iterations of a worker that was above the lower bars in at least one of them."""

    scores: list[Score] = []
    open: bool = False
    last_seen: int = 0


class RelativeState(Value, frozen=True, kw_only=True):
    """Tracks by kind and rank. Workers that look like the others have none, so this stays small."""

    tracks: dict[str, dict[int, Track]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """Compares each worker with the others, iteration by iteration."""

    name: ClassVar[str] = "relative"
    state_type: ClassVar[type[msgspec.Struct]] = RelativeState

    parameters: RelativeParameters

    def start(self) -> RelativeState:
        """No worker is suspected."""
        return RelativeState()

    def observe(self, observations: Sequence[Observation], state: RelativeState) -> tuple[RelativeState, list[Finding]]:
        """Add one iteration: flags that open or close by it."""
        measured = comparable(observations)
        if not measured:
            return state, []
        enough = len(measured) >= self.parameters.minimum_workers
        scores = {kind: score(kind, measured) if enough else {} for kind in KINDS}
        tracks: dict[str, dict[int, Track]] = {}
        findings: list[Finding] = []
        for kind in KINDS:
            tracks[kind], found = self._follow(kind, scores, state.tracks.get(kind, {}), measured)
            findings += found
        return RelativeState(tracks=tracks), findings

    def _follow(
        self,
        kind: Kind,
        scores: Mapping[Kind, Mapping[int, Score]],
        tracks: Mapping[int, Track],
        measured: Sequence[Observation],
    ) -> tuple[dict[int, Track], list[Finding]]:
        iteration = max(seen.iteration for seen in measured)
        kept: dict[int, Track] = {}
        findings: list[Finding] = []
        for rank in sorted(scores[kind].keys() | tracks.keys()):
            track = tracks.get(rank, Track())
            if rank in scores[kind]:
                track = self._extend(track, scores[kind][rank], iteration)
            elif iteration - track.last_seen >= self.parameters.window:
                # It has left, or too few others are left: what was seen of it says nothing about it now.
                findings += [forgotten(kind, rank, self.parameters.window)] if track.open else []
                continue
            track, changed = self._judge(track)
            if changed and track.open:
                also = [other for other in KINDS if other != kind and self._is_slow(scores[other].get(rank))]
                findings.append(opening(kind, rank, track.scores, self._slow_count(track), also, measured))
            elif changed:
                findings.append(closing(kind, rank, track.scores))
            if any(self._is_raised(seen) for seen in track.scores):
                kept[rank] = track
        return kept, findings

    def _extend(self, track: Track, seen: Score, iteration: int) -> Track:
        scores = [*track.scores, seen][-self.parameters.window :]
        return Track(scores=scores, open=track.open, last_seen=iteration)

    def _judge(self, track: Track) -> tuple[Track, bool]:
        """The track with its flag opened or closed, and whether that is a change."""
        if track.open:
            good = sum(not self._is_raised(seen) for seen in track.scores)
            is_open = good < self.parameters.slow_iterations
        else:
            is_open = self._slow_count(track) >= self.parameters.slow_iterations
        changed = is_open != track.open
        return (msgspec.structs.replace(track, open=is_open) if changed else track), changed

    def _slow_count(self, track: Track) -> int:
        return sum(self._is_slow(seen) for seen in track.scores)

    def _is_slow(self, seen: Score | None) -> bool:
        return seen is not None and seen.ratio >= self.parameters.slow and seen.lost_s >= self._worth_s(seen)

    def _is_raised(self, seen: Score) -> bool:
        """Above the lower bars, at which an open flag stays open."""
        return seen.ratio >= self.parameters.recovered and seen.lost_s >= self._worth_s(seen) / 2

    def _worth_s(self, seen: Score) -> float:
        return max(self.parameters.minimum_s, self.parameters.minimum_part * seen.iteration_s)
