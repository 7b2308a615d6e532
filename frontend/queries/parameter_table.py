"""Reads the table of runs and the parameters in which they differ, grouped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from frontend.queries.comparison import differences
from frontend.queries.jobs import JobLine, lines, matching
from frontend.queries.notes import tags_of

MOST: Final = 100
"""Maximum number of runs in a table, the newest."""

LEFT_OUT: Final = frozenset({"name", "seed"})
"""Fields that do not distinguish experiments; the name is in the first column."""

GROUPS: Final = {"": "none", "tag": "tag", "policy": "policy", "workload": "workload", "user": "user"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run with its results, tags and parameter values."""

    line: JobLine
    tags: list[str]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs of one group, newest first."""

    name: str
    runs: list[Run]

    @property
    def best(self) -> float | None:
        """The highest accuracy in the group."""
        return max((run.line.accuracy for run in self.runs if run.line.accuracy is not None), default=None)

    @property
    def lost(self) -> float | None:
        """The mean lost time in the group."""
        known = [run.line.lost_share for run in self.runs if run.line.lost_share is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTable:
    """All groups, and the parameters in which runs differ."""

    fields: tuple[str, ...]
    groups: list[RunGroup]
    runs: int
    left_out: int


def parameter_table(*, now: datetime, search: str, state: str, tag: str, group: str, team: str = "") -> ParameterTable:
    """The newest matching runs."""
    found = matching(search=search, state=state, tag=tag, team=team)
    jobs = list(found[:MOST])
    tags = tags_of(job.pk for job in jobs)
    rows = [each for each in differences(jobs) if each.field not in LEFT_OUT] if jobs else []
    runs = [
        Run(line=line, tags=tags.get(line.id, []), values=tuple(row.values[place] for row in rows))
        for place, line in enumerate(lines(jobs, now))
    ]
    return ParameterTable(
        fields=tuple(row.field for row in rows),
        groups=_grouped(runs, group),
        runs=len(runs),
        left_out=max(0, found.count() - len(jobs)),
    )


_KEYS: Final[dict[str, Callable[[Run], Sequence[str]]]] = {
    "": lambda run: [""],
    "tag": lambda run: run.tags or ["no tag"],
    "policy": lambda run: [f"{run.line.policy} · {run.line.barrier}"],
    "workload": lambda run: [run.line.workload],
    "user": lambda run: [run.line.submitted_by or "unknown"],
}


def _grouped(runs: Sequence[Run], group: str) -> list[RunGroup]:
    """The groups; a run with several tags is in several groups."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        for name in _KEYS[group](run):
            found.setdefault(name, []).append(run)
    return [RunGroup(name=name, runs=found[name]) for name in sorted(found)]
