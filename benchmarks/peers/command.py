"""``manage.py bench peers``: the same task on the same emulated machines, by Paceline and by others.

Two scenes: steady machines of 1000, 1000, 500 and 250 samples per second, and machines whose speeds change every ten
seconds. The table has the time to the target accuracy (from the first training pass); the mean iteration (per 256
samples of all machines), and that of the second half of this time; the part of the machines' time that no training
pass took; the resident memory of all processes summed, Ray's and Paceline's services included; and the start: from
the command to the first pass, services included.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.contenders import OTHERS, Contender, ours
from benchmarks.peers.figures import Figures, NotReached
from benchmarks.peers.paceline_runs import PLANE, PacelineRuns
from benchmarks.peers.running import Ground, end_all, watch
from benchmarks.peers.scenes import SCENES, Scene
from benchmarks.peers.table import line_of, table
from benchmarks.peers.verdict import Row, failures
from benchmarks.tables import say

TARGET = 0.93
LIMIT_S = 180.0


def run(contender: Contender, setting: str, scene: Scene, options: argparse.Namespace, *, plane_s: float) -> Figures:
    """One run, from nothing to the target.

    Raises:
        NotReached: if it does not get there.
    """
    name = f"peers-{os.getpid()}-{time.monotonic_ns()}"
    with TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        ground, launched = Ground(scene=scene, folder=Path(folder), name=name), time.monotonic()
        try:
            with contender.train(ground, setting):
                found = watch(
                    ground,
                    target=options.target,
                    limit_s=options.limit,
                    launched=launched,
                    also=[PLANE] if contender.ours else [],
                )
        finally:
            end_all(name)
    return replace(found, start_s=found.start_s + plane_s) if contender.ours else found


def best(contender: Contender, scene: Scene, options: argparse.Namespace, *, known: str, plane_s: float) -> Row:
    """The contender's row: its fastest setting, or why there is none."""
    row = Row(scene=scene.name, name=contender.name, judged=contender.judged, by_hand=contender.by_hand)
    if reason := contender.absent():
        return replace(row, absent=reason)
    settings = contender.choices(scene, known, search=options.search)
    done = [attempt(contender, replace(row, setting=each), scene, options, plane_s=plane_s) for each in settings]
    found = min(done, key=lambda each: each.figures.to_target_s if each.figures else float("inf"))
    return replace(found, tried=len(settings))


def attempt(contender: Contender, row: Row, scene: Scene, options: argparse.Namespace, *, plane_s: float) -> Row:
    """One setting; a run that fails is made once more, and the row says so."""
    found = row
    for failed in ("", " (first run failed)"):
        try:
            figures = run(contender, row.setting, scene, options, plane_s=plane_s)
            found = replace(row, figures=figures, remark=failed)
            break
        except (NotReached, RuntimeError) as error:
            found = replace(row, absent=str(error))
    if not options.json:
        say(line_of(found))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run those that are asked for; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", action="append", choices=list(SCENES), help="may be given more than once")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="those whose name has that word")
    parser.add_argument(
        "--search", action="store_true", help="each one's best of a few settings, found in the first scene"
    )
    parser.add_argument("--target", type=float, default=TARGET, help="accuracy (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    wanted = [word.lower() for word in options.only]
    rows: list[Row] = []
    with ExitStack() as stack:
        everybody = list(OTHERS)
        plane_s = 0.0
        if not wanted or any(word in "paceline attached native, lb-bsp, barrier" for word in wanted):
            paceline = PacelineRuns(stack)
            everybody, plane_s = [*everybody, *ours(paceline)], paceline.start_s
        chosen = [each for each in everybody if not wanted or any(word in each.name.lower() for word in wanted)]
        known: dict[str, str] = {}
        for name in options.scene or list(SCENES):
            for each in chosen:
                row = best(each, SCENES[name], options, known=known.get(each.name, ""), plane_s=plane_s)
                rows.append(row)
                known.setdefault(each.name, row.setting if row.figures else "")
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    document = {"rows": [asdict(row) for row in rows], "load": load, "failures": failures(rows)}
    said = [
        table(rows, target=options.target),
        f"{os.cpu_count()} cores, load {load} at the end",
        *(f"MISSED: {failure}" for failure in document["failures"]),
    ]
    say(json.dumps(document) if options.json else "\n".join(said))
    return 1 if document["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
