"""``manage.py reproduce [PAPER|all]``: simulates the headlines of the papers; ``all`` writes docs/reproduction.md.

``--live`` runs headlines with real processes, compares them with their simulation, and writes
docs/reproduction-live.md.
"""

import json
import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction.claims import Claim, Finding, find, runs_of
from controlplane.simulator.reproduction.document import document, figure
from controlplane.simulator.reproduction.papers import ALL, PAPERS, chosen_papers
from controlplane.simulator.reproduction.stored import (
    Stored,
    StoredRow,
    finding_of,
    is_close,
    is_current,
    row_of,
    sample_of,
)
from controlplane.telemetry.code_digest import SIMULATED, digest_of_code
from controlplane.telemetry.live_reproduction import Files, chosen_rows, listing, run_rows, verdicts
from controlplane.telemetry.reproducing import check_writable, cost_of, play_all, read_stored, write_stored

DIFFERS, REFUSED, INTERRUPTED = 1, 2, 130
LEAST_SEEDS = 8
"""Fewest seeds for the document."""
ENDING = ".json"
"""Suffix of the file with the document's results."""

Chosen = Mapping[str, tuple[str, Mapping[int, Claim]]]
"""By paper: its title, and the rows to be measured by their number."""


class Command(BaseCommand):
    help = (
        "Simulate the main results of the papers and report which are reproduced. all writes docs/reproduction.md, one "
        "paper prints its part. Exit code 2: invalid arguments or a failed run; a result that differs from the paper's "
        "is no error. --sample measures a tenth of the rows again; exit code 1: not what the document says. --live: "
        "with real processes on emulated machines; writes docs/reproduction-live.md."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paper", nargs="?", default=ALL, help="lb-bsp, psld, a-bsp, psp, or all (default)")
        parser.add_argument("--rows", default="", help="rows of one paper, such as 1-3,7 (default: all)")
        parser.add_argument("--seeds", type=int, default=None, help=f"seeds per row (default: {LEAST_SEEDS}, live 1)")
        parser.add_argument("--first-seed", type=int, default=0, help="the first of the seeds (default: %(default)s)")
        parser.add_argument("--output", type=Path, default=None, help="file to write (default: docs/reproduction.md)")
        parser.add_argument(
            "--changed", action="store_true", help="measure only rows that are not stored as they are declared now"
        )
        parser.add_argument(
            "--sample", action="store_true", help="measure a tenth of the stored rows again and compare; writes nothing"
        )
        parser.add_argument(
            "--keep",
            type=Path,
            default=None,
            help="file of finished runs: read at the start and appended to, so that an interrupted run can be resumed",
        )
        parser.add_argument(
            "--processes", type=int, default=os.cpu_count() or 1, help="parallel processes (default: %(default)s)"
        )
        parser.add_argument(
            "--live", action="store_true", help="run rows with real processes and compare them with their simulation"
        )
        parser.add_argument(
            "--only", action="append", default=[], metavar="NAME", help="with --live: this row only; may be repeated"
        )
        parser.add_argument("--list", action="store_true", help="with --live: list the rows and their runs")
        parser.add_argument("--json", action="store_true", help="print one JSON document only")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._handle(**options)
        except SimulationError as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted", returncode=INTERRUPTED) from None

    def _handle(self, *, paper: str, output: Path | None, keep: Path | None, **options: Any) -> None:
        if options["live"]:
            self._live(paper, output, keep, options)
            return
        if options["only"] or options["list"]:
            raise SimulationError("live: found --only or --list without it, which choose rows of reproduce --live")
        seeds = _seeds(options["first_seed"], options["seeds"] if options["seeds"] is not None else LEAST_SEEDS)
        if options["processes"] < 1:
            raise SimulationError(f"processes: found {options['processes']}, expected 1 or more")
        if options["rows"] and paper == ALL:
            raise SimulationError(
                "rows: found rows of all papers, expected one paper, as in reproduce lb-bsp --rows 1-3"
            )
        target = output if output is not None else settings.BASE_DIR / "docs" / "reproduction.md"
        before = read_stored(target.with_suffix(ENDING)) if options["changed"] or options["sample"] else None
        if options["sample"]:
            assert before is not None
            self._sample(before, keep, options)
            return
        chosen: Chosen = {
            name: (title, _numbered(claims, options["rows"])) for name, (title, claims) in chosen_papers(paper).items()
        }
        as_json: bool = options["json"]
        is_written = not as_json and (paper == ALL or output is not None)
        for name, path in (("output", target if is_written else None), ("keep", keep)):
            check_writable(name, path)
        if before is not None:
            seeds = before.range
        found, stored = self._measure(chosen, seeds, before, keep, options)
        if as_json:
            rows = {name: [_row(one) for one in findings.values()] for name, (_, findings) in found.items()}
            self.stdout.write(json.dumps(rows))
        elif is_written:
            target.write_text(document(found, stored), encoding="utf-8")
            write_stored(target.with_suffix(ENDING), stored)
            self.stdout.write(f"wrote {target}")
        else:
            self.stdout.write(document(found, stored))

    def _live(self, paper: str, output: Path | None, keep: Path | None, options: Mapping[str, Any]) -> None:
        """Rows on real processes."""
        rows = chosen_rows(paper, options["only"])
        docs = settings.BASE_DIR / "docs"
        target = output if output is not None else docs / "reproduction-live.md"
        if options["list"]:
            self.stdout.write(listing(rows, target.with_suffix(ENDING)))
            return
        seeds = _seeds(options["first_seed"], options["seeds"] if options["seeds"] is not None else 1)
        check_writable("output", target)
        files = Files(
            kept=keep if keep is not None else settings.DATA_DIR / "reproduction-live.jsonl",
            document=target,
            simulated=read_stored(docs / "reproduction.json"),
        )
        run_rows(rows, seeds, files, self.stderr.write)
        self.stdout.write("\n".join([*verdicts(rows, files), f"wrote {target}"]))

    def _measure(
        self, chosen: Chosen, seeds: range, before: Stored | None, keep: Path | None, options: Mapping[str, Any]
    ) -> tuple[dict[str, tuple[str, dict[int, Finding]]], Stored]:
        """Findings of all rows; unchanged rows are taken from ``before``."""
        code = digest_of_code(SIMULATED)
        kept = {
            (name, row): (finding_of(claim, one), one.code)
            for name, (_, claims) in chosen.items()
            for row, claim in claims.items()
            if before is not None
            for one in before.papers.get(name, [])
            if is_current(claim, one, seeds)
        }
        new = [c for name, (_, claims) in chosen.items() for row, c in claims.items() if (name, row) not in kept]
        keys = [(run, seed) for seed in seeds for run in runs_of(new)]
        played = play_all(keys, keep, processes=options["processes"], stderr=self.stderr, silent=options["json"])
        rows: dict[str, dict[int, StoredRow]] = {name: {} for name in chosen}
        for name, (_, claims) in chosen.items():
            for row, claim in claims.items():
                finding, made_by = kept.get((name, row)) or (
                    find(claim, seeds, lambda run, seed: played[run, seed]),
                    code,
                )
                rows[name][row] = row_of(finding, seeds, made_by)
        used = runs_of([claim for _, claims in chosen.values() for claim in claims.values()])
        scenarios = {run.scenario for run in used}
        earlier, now = before.cost_s if before is not None else {}, cost_of(played)
        cost = {name: max(earlier.get(name, 0.0), now.get(name, 0.0)) for name in scenarios}
        stored = Stored(
            first_seed=seeds[0],
            seeds=len(seeds),
            papers={name: list(those.values()) for name, those in rows.items()},
            runs=len(used) * len(seeds),
            cost_s={name: round(seconds, 2) for name, seconds in cost.items()},
        )
        # As stored, so that the document agrees with its results.
        found = {
            name: (title, {row: finding_of(claim, rows[name][row]) for row, claim in claims.items()})
            for name, (title, claims) in chosen.items()
        }
        return found, stored

    def _sample(self, stored: Stored, keep: Path | None, options: Mapping[str, Any]) -> None:
        """Measure a tenth of the rows again, with one seed each."""
        claims = {name: rows for name, (_, rows) in PAPERS.items()}
        outdated = [
            f"{name} {row}: {claim.statement}"
            for name, rows in claims.items()
            for row, claim in enumerate(rows, start=1)
            if row > len(stored.papers.get(name, []))
            or not is_current(claim, stored.papers[name][row - 1], stored.range)
        ]
        if outdated:
            raise CommandError(
                "the stored results are of other rows; measure them again with reproduce --changed:\n  "
                + "\n  ".join(outdated),
                returncode=DIFFERS,
            )
        code = digest_of_code(SIMULATED)
        rows = sample_of(claims, stored, code)
        keys = list(dict.fromkeys((run, seed) for name, row, seed in rows for run in claims[name][row - 1].runs))
        played = play_all(keys, keep, processes=options["processes"], stderr=self.stderr, silent=options["json"])
        differing = []
        for name, row, seed in rows:
            claim = claims[name][row - 1]
            (now,) = find(_alone(claim), [seed], lambda run, seed: played[run, seed]).values
            then = stored.papers[name][row - 1].values[seed - stored.first_seed]
            if not is_close(then, now):
                shown = [figure(value) if value is not None else "not reached" for value in (then, now)]
                differing.append(f"{name} {row}, seed {seed}: stored {shown[0]}, now {shown[1]} ({claim.statement})")
        if differing:
            raise CommandError(
                f"{len(differing)} of {len(rows)} rows of the sample differ from the stored ones:\n  "
                + "\n  ".join(differing),
                returncode=DIFFERS,
            )
        others = stored.codes.total() - stored.codes[code]
        whose = f"{others} of {stored.codes.total()} rows were measured by other code" if others else "all by this code"
        self.stdout.write(f"{len(rows)} rows, measured again with one seed each, are as stored; {whose} ({code})")


def _alone(claim: Claim) -> Claim:
    """The claim without Paceline's own policies."""
    return replace(claim, beside=())


def _seeds(first: int, count: int) -> range:
    if count < 1:
        raise SimulationError(f"seeds: found {count}, expected 1 or more; {LEAST_SEEDS} for the document")
    if first < 0:
        raise SimulationError(f"first-seed: found {first}, expected 0 or more")
    return range(first, first + count)


def _numbered(claims: Sequence[Claim], rows: str) -> dict[int, Claim]:
    """Claims by their row in the document; those in ``rows``, or all."""
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


def _row(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    return {
        "where": claim.where,
        "says": claim.statement,
        "basis": claim.basis,
        "kind": claim.kind,
        "paper": claim.figure,
        "here": finding.mean,
        "values": finding.known,
        "missing": finding.missing,
        "mechanism": claim.mechanism.name if claim.mechanism is not None else None,
        "acted": finding.acted,
        "verdict": finding.verdict,
        "beside": {name: list(values) for name, values in finding.beside},
        "note": claim.note.strip(),
    }
