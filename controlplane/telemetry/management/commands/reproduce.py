"""``manage.py reproduce [PAPER|all]``: every headline of the papers, simulated; ``all`` writes docs/reproduction.md."""

import gc
import json
import multiprocessing
import os
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.protocol.base import Value
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction.claims import Claim, Finding, Played, Run, find, runs_of
from controlplane.simulator.reproduction.document import document
from controlplane.simulator.reproduction.papers import ALL, chosen_papers
from controlplane.simulator.reproduction.runs import play_run

REFUSED, INTERRUPTED = 2, 130
LEAST_SEEDS = 8
"""Least seeds for the document."""
WORTH_A_PROCESS = 4
"""Least runs per process."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Each is set to 1: the runs themselves are done in parallel."""

Key = tuple[Run, int]


class Command(BaseCommand):
    help = (
        "Simulate the main results of the papers and report which are reproduced. all writes docs/reproduction.md, one "
        "paper prints its part. Exit code 2: invalid arguments or a failed run; a result that differs is no error."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paper", nargs="?", default=ALL, help="lb-bsp, psld, a-bsp, psp, or all (default)")
        parser.add_argument("--rows", default="", help="rows of one paper, such as 1-3,7 (default: all)")
        parser.add_argument("--seeds", type=int, default=LEAST_SEEDS, help="seeds per row (default: %(default)s)")
        parser.add_argument("--output", type=Path, default=None, help="file to write (default: docs/reproduction.md)")
        parser.add_argument(
            "--keep",
            type=Path,
            default=None,
            help="file of finished runs: read at the start and appended to, so that an interrupted run can be resumed",
        )
        parser.add_argument(
            "--processes", type=int, default=os.cpu_count() or 1, help="parallel processes (default: %(default)s)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON document only")

    def handle(
        self, *args: Any, paper: str, seeds: int, output: Path | None, keep: Path | None, **options: Any
    ) -> None:
        as_json: bool = options["json"]
        try:
            if seeds < 1:
                raise SimulationError(f"seeds: found {seeds}, expected 1 or more; {LEAST_SEEDS} for the document")
            if options["processes"] < 1:
                raise SimulationError(f"processes: found {options['processes']}, expected 1 or more")
            papers = {
                name: (title, _numbered(claims, options["rows"]))
                for name, (title, claims) in chosen_papers(paper).items()
            }
            target = output if output is not None else settings.BASE_DIR / "docs" / "reproduction.md"
            if options["rows"] and paper == ALL:
                raise SimulationError(
                    "rows: found rows of all papers, expected one paper, as in reproduce lb-bsp --rows 1-3"
                )
            is_written = not as_json and (paper == ALL or output is not None)
            for name, path in (("output", target if is_written else None), ("keep", keep)):
                _check_writable(name, path)
            runs = runs_of([claim for _, claims in papers.values() for claim in claims.values()])
            played = self._play(runs, seeds, keep, processes=options["processes"], silent=as_json)
        except SimulationError as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None
        found = {name: (title, _judged(claims, seeds, played)) for name, (title, claims) in papers.items()}
        if as_json:
            self.stdout.write(
                json.dumps({name: [_row(one) for one in rows.values()] for name, (_, rows) in found.items()})
            )
            return
        text = document(found, seeds=seeds, played=played)
        if is_written:
            target.write_text(text, encoding="utf-8")
            self.stdout.write(f"wrote {target}")
        else:
            self.stdout.write(text)

    def _play(
        self, runs: Sequence[Run], seeds: int, keep: Path | None, *, processes: int, silent: bool
    ) -> dict[Key, Played]:
        """The result of each run and seed."""
        every = [(run, seed) for seed in range(seeds) for run in runs]
        known = _kept(keep)
        played = {key: known[key] for key in every if key in known}
        keys = [key for key in every if key not in played]
        if not keys:
            return played
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
        console = Console(file=cast(IO[str], self.stderr))
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=silent, transient=True) as bar:
            task = bar.add_task("runs", total=len(every), completed=len(played))
            for key, one in _side_by_side(keys, processes):
                played[key] = one
                _keep(keep, key, one)
                bar.advance(task)
        return played


def _side_by_side(keys: Sequence[Key], most: int) -> Iterator[tuple[Key, Played]]:
    """Run on as many processes; a few runs are not worth one each, which takes seconds to start."""
    processes = min(most, len(keys) // WORTH_A_PROCESS)
    if processes < 2:
        yield from map(play_timed, keys)
        return
    for library in THREADS:
        os.environ.setdefault(library, "1")
    with multiprocessing.get_context("spawn").Pool(processes, initializer=gc.freeze) as pool:
        yield from pool.imap_unordered(play_timed, keys, chunksize=1)


def play_timed(key: Key) -> tuple[Key, Played]:
    """One run, with the CPU time that it took."""
    began = time.process_time()
    one = play_run(*key)
    return key, msgspec.structs.replace(one, cpu_s=time.process_time() - began)


class Done(Value, frozen=True, kw_only=True):
    """A line of the results file."""

    scenario: str
    policy: str
    to_target: bool
    seed: int
    played: Played


def _check_writable(name: str, path: Path | None) -> None:
    """Check before the simulations, which take minutes, that ``path`` can be written at the end."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise SimulationError(
            f"{name}: {path} cannot be written ({error.strerror}), expected a file in a folder that is there"
        ) from None
    if is_new:
        path.unlink()


def _kept(path: Path | None) -> dict[Key, Played]:
    if path is None or not path.exists():
        return {}
    try:
        lines = [msgspec.json.decode(line, type=Done) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise SimulationError(f"keep: {path} holds a line that is no run ({error}): remove the file") from None
    return {(Run(one.scenario, one.policy, one.to_target), one.seed): one.played for one in lines}


def _keep(path: Path | None, key: Key, played: Played) -> None:
    if path is not None:
        run, seed = key
        done = Done(scenario=run.scenario, policy=run.policy, to_target=run.to_target, seed=seed, played=played)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(done) + b"\n")


def _numbered(claims: Sequence[Claim], rows: str) -> dict[int, Claim]:
    """Results by their row in the document; those in ``rows``, or all."""
    every = dict(enumerate(claims, start=1))
    if not rows:
        return every
    chosen: set[int] = set()
    for part in rows.split(","):
        ends = part.strip().split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise SimulationError(f"rows: found {part.strip()!r}, expected numbers and ranges, such as 1-3,7")
        first, last = int(ends[0]), int(ends[-1])
        if not 1 <= first <= last <= len(every):
            raise SimulationError(f"rows: found {part.strip()!r}, expected rows from 1 to {len(every)}")
        chosen.update(range(first, last + 1))
    return {row: claim for row, claim in every.items() if row in chosen}


def _judged(claims: Mapping[int, Claim], seeds: int, played: Mapping[Key, Played]) -> dict[int, Finding]:
    return {row: find(claim, seeds, lambda run, seed: played[run, seed]) for row, claim in claims.items()}


def _row(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    return {
        "where": claim.where,
        "says": claim.says,
        "kind": claim.kind,
        "paper": claim.figure,
        "here": finding.mean,
        "values": list(finding.values),
        "missing": finding.missing,
        "verdict": finding.verdict,
        "beside": {name: list(values) for name, values in finding.beside},
        "note": claim.note.strip(),
    }
