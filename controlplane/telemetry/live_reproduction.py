"""``manage.py reproduce --live``: runs rows with real processes, stores the result of each run, and writes the
document.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction.claims import Played, Run, find
from controlplane.simulator.reproduction.document import figure, mean_of
from controlplane.simulator.reproduction.live.declared import ROWS
from controlplane.simulator.reproduction.live.document import document, is_outside
from controlplane.simulator.reproduction.live.results import (
    SPREAD,
    FailedRun,
    LiveResult,
    LiveRun,
    LiveStored,
    finding,
    is_complete,
    is_current,
    result_of,
    run_digest,
)
from controlplane.simulator.reproduction.live.rows import LiveRow
from controlplane.simulator.reproduction.papers import chosen_papers
from controlplane.simulator.reproduction.runs import play_run
from controlplane.simulator.reproduction.stored import Stored, finding_of, row_of
from controlplane.simulator.reproduction.stored import is_current as is_stored
from controlplane.telemetry.code_digest import LIVE, digest_of_code

PLAYER: Final = "benchmarks.reproduction.playing"
Key = tuple[Run, int]
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Paths of the results."""

    kept: Path
    """A line for each finished run; an interrupted command continues after them."""
    document: Path
    simulated: Stored
    """The results of docs/reproduction.md."""

    @property
    def results(self) -> Path:
        """The results of the rows in the document."""
        return self.document.with_suffix(".json")


def chosen_rows(paper: str, only: Sequence[str]) -> list[LiveRow]:
    """The rows of a paper, or of all, or those named in ``only``, in that order.

    Raises:
        SimulationError: for an unknown paper or name.
    """
    papers = chosen_papers(paper)
    by_name = {row.name: row for row in ROWS if row.paper in papers}
    for name in only:
        if name not in by_name:
            raise SimulationError(f"only: found {name!r}, expected one of {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(only)] or list(by_name.values())


def listing(rows: Sequence[LiveRow], results: Path) -> str:
    """Each row with the runs that it needs, and the version of the code that made the stored ones."""
    stored = read_results(results)
    return "\n".join(
        f"{row.name}: {row.claim.where}, {row.claim.statement} "
        f"({', '.join(f'{run.scenario} {run.policy}' for run in row.runs)}): {_made_by(row, stored)}"
        for row in rows
    )


def _made_by(row: LiveRow, stored: LiveStored | None) -> str:
    result = stored.rows.get(row.name) if stored is not None else None
    if stored is None or result is None or not is_current(row.claim, result, stored.range):
        return "not measured"
    others = {run.code for run in result.runs} - {digest_of_code(LIVE)}
    return f"measured by other code ({', '.join(sorted(others))})" if others else "measured by this code"


def run_rows(rows: Sequence[LiveRow], seeds: range, files: Files, say: Say) -> str:
    """Make the missing runs one after another, and write the document after each row; returns its text.

    Raises:
        SimulationError: if jobs cannot be run here, or a job fails.
    """
    made = read_runs(files.kept)
    missing = [
        (run, seed)
        for run, seed in dict.fromkeys((run, seed) for row in rows for seed in seeds for run in row.runs)
        if run_digest(run, seed) not in made
    ]
    known = len({(run, seed) for row in rows for seed in seeds for run in row.runs}) - len(missing)
    say(f"{len(rows)} rows: {len(missing)} runs to make, {known} already made")
    failures = []
    for done in _played(missing):
        if isinstance(done, FailedRun):
            failures.append(f"{done.scenario} {done.policy} seed {done.seed}: {done.why}")
            say(failures[-1])
            continue
        made[done.digest] = done
        _keep(files.kept, done)
        say(f"{done.scenario} {done.policy} seed {done.seed}: {_sentence(done)}")
        write_document(files, made, seeds)
    text = write_document(files, made, seeds)
    if failures:
        raise SimulationError("live: these runs did not succeed:\n  " + "\n  ".join(failures))
    return text


def write_document(files: Files, made: Mapping[str, LiveRun], seeds: range) -> str:
    """The document of every row with finished runs, present or earlier."""
    before = read_results(files.results)
    results = {row.name: _result(row, made, before, seeds) for row in ROWS}
    rows = {name: result for name, result in results.items() if result is not None}
    stored = LiveStored(first_seed=seeds[0], seeds=len(seeds), rows=rows)
    lines = [f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(one).decode()}" for name, one in rows.items()]
    head = f'{{"first_seed": {stored.first_seed}, "seeds": {stored.seeds}, "rows": {{\n'
    files.results.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    text = document(ROWS, stored, simulated_figures(files.simulated))
    files.document.write_text(text, encoding="utf-8")
    return text


def _result(row: LiveRow, made: Mapping[str, LiveRun], before: LiveStored | None, seeds: range) -> LiveResult | None:
    """The result from the present runs, otherwise the stored one; None if it was not measured as declared now."""
    if is_complete(row, seeds, made):
        result = result_of(row, seeds, made, _twins(row, seeds))
        return replace(result, spread=_spread(row)) if is_outside(row, result) else result
    stored = before.rows.get(row.name) if before is not None and before.range == seeds else None
    return stored if stored is not None and is_current(row.claim, stored, seeds) else None


def _spread(row: LiveRow) -> list[float]:
    """The twin's figures with several seeds."""
    return [value for value in row_of(find(row.claim, SPREAD, _twin), SPREAD).values if value is not None]


def simulated_figures(stored: Stored) -> dict[str, float | None]:
    """By live row: the mean of the simulated row; without rows that have changed since."""
    found: dict[str, float | None] = {}
    for row in ROWS:
        rows = stored.papers.get(row.paper, [])
        if row.number <= len(rows) and is_stored(row.headline, rows[row.number - 1], stored.range):
            found[row.name] = finding_of(row.headline, rows[row.number - 1]).mean
    return found


def verdicts(rows: Sequence[LiveRow], files: Files) -> list[str]:
    """A line for each row that was measured."""
    stored = read_results(files.results)
    found = []
    for row in rows:
        if stored is not None and row.name in stored.rows:
            result = stored.rows[row.name]
            live, twin = mean_of(result.row.values), mean_of(result.twin) if result.twin else "-"
            verdict = finding(row, result).verdict
            found.append(f"{row.name}: live {live}, twin {twin}, paper {figure(row.claim.figure)}: {verdict}")
    return found


def read_runs(path: Path) -> dict[str, LiveRun]:
    """Finished runs by digest; the last of each counts.

    Raises:
        SimulationError: for an invalid line.
    """
    if not path.exists():
        return {}
    try:
        runs = [msgspec.json.decode(line, type=LiveRun) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise SimulationError(f"keep: {path} has a line that is not a run ({error}): remove the line") from None
    return {run.digest: run for run in runs}


def read_results(path: Path) -> LiveStored | None:
    """The results stored next to the document; None if there are none."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=LiveStored)
    except msgspec.DecodeError as error:
        raise SimulationError(f"results: {path} has no results ({error}): remove the file") from None


def _twins(row: LiveRow, seeds: range) -> dict[str, Played]:
    return {run_digest(run, seed): _twin(run, seed) for run in row.runs for seed in seeds}


_known: dict[Key, Played] = {}


def _twin(run: Run, seed: int) -> Played:
    if (run, seed) not in _known:
        _known[run, seed] = play_run(run, seed)
    return _known[run, seed]


def _played(keys: Sequence[Key]) -> Iterator[LiveRun | FailedRun]:
    if not keys:
        return
    if find_spec(PLAYER.partition(".")[0]) is None:
        raise SimulationError("live: found no package benchmarks; it comes with a checkout")
    try:
        yield from import_module(PLAYER).play_all(keys)
    except RuntimeError as error:
        raise SimulationError(f"live: {error}") from None


def _keep(path: Path, run: LiveRun) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")


def _sentence(run: LiveRun) -> str:
    twin = _twin(Run(run.scenario, run.policy), run.seed).outcome
    mine = run.live.outcome
    return (
        f"{mine.seconds:.0f} s, iteration {1000 * mine.iteration_s:.0f} ms, twin {1000 * twin.iteration_s:.0f} ms "
        f"({mine.iteration_s / twin.iteration_s - 1:+.1%}); load {run.load:.1f}, overran {run.overran:.1%}"
    )
