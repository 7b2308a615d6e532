"""How many labelled stragglers the detectors find, and how many of their flags are true.

``manage.py bench stragglers [--detail] [--json]``

A lasting label is found when a lasting flag of that subject, index and kind is open at some time within 10 iterations
from its beginning, and was not open before. A lasting flag is true when something that is labelled as lasting was slow
in the window that the flag stands on. A flag on a worker that is not labelled slow and waits for more than a quarter
of the iteration is counted on its own: there must be none.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks.offline.straggler_situations import SETTINGS, SITUATIONS, Label, Situation, generate
from controlplane.core.choices import Finding, Observation, ServerDetector, Transfer
from controlplane.policies import registry
from controlplane.protocol.spec import Choice

WITHIN: Final = 10
"""Iterations after which a lasting straggler must have been flagged."""

LOOKS_BACK: Final = 10
"""A flag is based on at most this many iterations: a straggler that has just recovered may still be flagged."""

MUCH_WAITING: Final = 0.25


@dataclass(slots=True, kw_only=True)
class Score:
    """The result of one detector for one set of situations."""

    labels: int = 0
    found: int = 0
    flags: int = 0
    true: int = 0
    waiting: int = 0
    """Lasting or transient flags on workers that merely waited."""
    transient: int = 0
    transient_true: int = 0
    causes: int = 0
    causes_right: int = 0
    delays: list[int] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    @property
    def recall(self) -> float:
        """Fraction of the lasting labels that were found in time."""
        return self.found / max(1, self.labels)

    @property
    def precision(self) -> float:
        """Fraction of the lasting flags that are true."""
        return self.true / max(1, self.flags)


def observations(situation: Situation, iteration: int) -> list[Observation]:
    """What the workers reported."""
    communication, waiting = situation.communication_s, situation.waiting_s
    return [
        Observation(
            rank=rank,
            iteration=iteration,
            samples=int(situation.samples[iteration, rank]),
            compute_s=float(situation.compute_s[iteration, rank]),
            communication_s=float(communication[iteration, rank]),
            waiting_s=float(waiting[iteration, rank]),
            cpu=float(situation.cpu[iteration, rank]),
            memory=float(situation.memory[iteration, rank]),
        )
        for rank in range(situation.samples.shape[1])
        if not np.isnan(situation.compute_s[iteration, rank])
    ]


def transfers(situation: Situation, iteration: int) -> list[Transfer]:
    """How long their exchanges with the servers took."""
    return [
        Transfer(
            rank=rank,
            server=server,
            iteration=iteration,
            bytes=int(situation.server_bytes[server]),
            seconds=float(situation.exchange_s[iteration, rank, server]),
        )
        for rank in range(situation.samples.shape[1])
        for server in range(len(situation.server_bytes))
        if not np.isnan(situation.exchange_s[iteration, rank, server])
    ]


def watch(detector: Any, situation: Situation) -> Iterator[tuple[int, Finding]]:
    """Every finding, and the iteration after which it came."""
    state = detector.start()
    for iteration in range(len(situation.samples)):
        state, found = detector.observe(observations(situation, iteration), state)
        if isinstance(detector, ServerDetector):
            state, more = detector.observe_servers(transfers(situation, iteration), state)
            found = [*found, *more]
        for finding in found:
            yield iteration, finding


def measure(detector: Any, situations: list[Situation]) -> Score:
    """The detector's score."""
    score = Score()
    for situation in situations:
        _add(score, situation, list(watch(detector, situation)))
    return score


def _add(score: Score, situation: Situation, findings: list[tuple[int, Finding]]) -> None:
    opened = [(at, finding) for at, finding in findings if finding.open and finding.subject != "job"]
    for label in situation.labels:
        if label.lasting:
            score.labels += 1
            _find(score, situation, label, opened)
    for at, finding in opened:
        true = [label for label in situation.labels if _is_about(label, finding) and _covers(label, at)]
        if finding.persistence == "lasting":
            score.flags += 1
            score.true += any(label.lasting for label in true)
            if not any(label.lasting for label in true):
                score.wrong[situation.story] += 1
        else:
            score.transient += 1
            score.transient_true += bool(true)
        score.waiting += not true and _waits(situation, finding, at)


def _find(score: Score, situation: Situation, label: Label, opened: list[tuple[int, Finding]]) -> None:
    due = [
        (at, finding)
        for at, finding in opened
        if _is_about(label, finding) and finding.persistence == "lasting" and label.begin <= at < label.begin + WITHIN
    ]
    if not due:
        score.missed[situation.story] += 1
        return
    at, finding = due[0]
    score.found += 1
    score.delays.append(at - label.begin + 1)
    if "cause" in finding.evidence:
        score.causes += 1
        score.causes_right += finding.evidence["cause"] == (label.cause or "unknown")


def _is_about(label: Label, finding: Finding) -> bool:
    return (label.subject, label.index, label.kind) == (finding.subject, finding.rank, finding.kind)


def _covers(label: Label, at: int) -> bool:
    return label.begin <= at < label.end + LOOKS_BACK


def _waits(situation: Situation, finding: Finding, at: int) -> bool:
    if finding.subject != "worker":
        return False
    waiting = float(situation.waiting_s[at, finding.rank])
    busy = float(situation.compute_s[at, finding.rank] + situation.communication_s[at, finding.rank])
    return waiting > MUCH_WAITING * (waiting + busy)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--situations", type=int, default=SITUATIONS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--detail", action="store_true", help="the stories in which labels were missed or flags wrong")
    options = parser.parse_args(arguments)
    rows = []
    for setting in SETTINGS:
        situations = generate(setting, seed=options.seed, count=options.situations)
        for name in registry.names("stragglers"):
            score = measure(registry.resolve("stragglers", Choice(name=name)), situations)
            rows.append(_row(setting.name, name, score))
            if not options.json:
                sys.stdout.write(_line(rows[-1]))
            if options.detail:
                sys.stdout.write(f"    missed {dict(score.missed)}\n    wrong {dict(score.wrong)}\n")
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    return 0


def _row(setting: str, name: str, score: Score) -> dict[str, Any]:
    return {
        "setting": setting,
        "detector": name,
        "recall": score.recall,
        "labels": score.labels,
        "precision": score.precision,
        "flags": score.flags,
        "median_delay": float(np.median(score.delays)) if score.delays else None,
        "merely_waiting": score.waiting,
        "transient_flags": score.transient,
        "transient_true": score.transient_true,
        "causes": score.causes,
        "causes_right": score.causes_right,
    }


def _line(row: dict[str, Any]) -> str:
    causes = f"{row['causes_right']} of {row['causes']}" if row["causes"] else "none said"
    return (
        f"{row['setting']:10} {row['detector']:9} recall {row['recall']:.3f} of {row['labels']} within {WITHIN}, "
        f"precision {row['precision']:.3f} of {row['flags']} lasting flags, median delay {row['median_delay']}, "
        f"on merely waiting {row['merely_waiting']}, cause right {causes}, "
        f"transient {row['transient_true']} of {row['transient_flags']} true\n"
    )


if __name__ == "__main__":
    sys.exit(main())
