"""``manage.py bench peers``: the same task on the same emulated machines, with Paceline and with other libraries.

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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.contenders import OTHERS, OURS, Contender, ours
from benchmarks.peers.figures import Figures, NotReached
from benchmarks.peers.paceline_runs import PLANE, PacelineRuns
from benchmarks.peers.running import Bounds, Ground, end_all, watch
from benchmarks.peers.scenes import SCENES, Scene
from benchmarks.peers.table import line_of, table
from benchmarks.peers.verdict import Row, failures
from benchmarks.tables import say
from controlplane.runtime.embedded.errors import Interrupted
from controlplane.runtime.embedded.interruption import Interruption

TARGET = 0.93
LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Common settings of all runs."""

    options: argparse.Namespace
    plane_s: float
    """How long the control plane took to start."""
    pause: Callable[[float], object]
    """Waits; raises ``Interrupted`` if a signal was received."""


def run(contender: Contender, setting: str, scene: Scene, effort: Effort, *, limit_s: float) -> Figures:
    """One run, from its start to the target.

    Raises:
        NotReached: if it does not reach the target.
        Interrupted: by a signal.
    """
    name = f"peers-{os.getpid()}-{time.monotonic_ns()}"
    also = [PLANE] if contender.ours else []
    with TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        ground, launched = Ground(scene=scene, folder=Path(folder), name=name), time.monotonic()
        bounds = Bounds(target=effort.options.target, limit_s=limit_s, launched=launched)
        try:
            with contender.train(ground, setting):
                found = watch(ground, bounds, also=also, pause=effort.pause)
        finally:
            end_all(name)
    return replace(found, start_s=found.start_s + effort.plane_s) if contender.ours else found


def best(contender: Contender, scene: Scene, effort: Effort, *, known: str) -> Row:
    """The contender's row: its fastest setting, or why there is none."""
    row = Row(scene=scene.name, name=contender.name, judged=contender.judged, by_hand=contender.by_hand)
    if reason := contender.absent():
        return replace(row, absent=reason)
    settings, usual_s = contender.choices(scene, known, search=effort.options.search), effort.options.limit
    found = row
    for setting in settings:
        limit_s = min(usual_s, found.figures.to_target_s) if found.figures else usual_s
        tried = attempt(contender, replace(row, setting=setting), scene, effort, limit_s=limit_s)
        found = tried if tried.figures or not found.figures else found
    return replace(found, tried=len(settings))


def attempt(contender: Contender, row: Row, scene: Scene, effort: Effort, *, limit_s: float) -> Row:
    """Run one setting within that limit; a failed run is repeated once, and the row says so.

    A limit below the usual one is the time of another setting: a run that exceeds it is slower, and is not repeated.
    """
    found = row
    for failed in ("", " (first run failed)"):
        try:
            found = replace(row, figures=run(contender, row.setting, scene, effort, limit_s=limit_s), remark=failed)
            break
        except (NotReached, RuntimeError) as error:
            found = replace(row, absent=str(error))
            if limit_s < effort.options.limit:
                found = replace(row, absent=f"not faster than the previous setting, which took {limit_s:.1f} s")
                break
    if not effort.options.json:
        say(line_of(found))
    return found


def compare(options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """A row for each contender and scene.

    Raises:
        Interrupted: by a signal; all processes are ended.
    """
    wanted = [word.lower() for word in options.only]
    everybody, plane_s, rows = list(OTHERS), 0.0, list[Row]()
    interruption = stack.enter_context(Interruption())
    if not wanted or any(word in name.lower() for name in OURS for word in wanted):
        paceline = PacelineRuns(stack)
        everybody, plane_s = [*everybody, *ours(paceline)], paceline.start_s
        interruption = paceline.cluster.supervisor.interruption
    chosen = [each for each in everybody if not wanted or any(word in each.name.lower() for word in wanted)]
    known: dict[str, str] = {}
    for name in options.scene or list(SCENES):
        for each in chosen:
            effort = Effort(options=options, plane_s=plane_s, pause=interruption.pause)
            row = best(each, SCENES[name], effort, known=known.get(each.name, ""))
            rows.append(row)
            known.setdefault(each.name, row.setting if row.figures else "")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested contenders; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", action="append", choices=list(SCENES), help="may be given more than once")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="only those whose name contains this word"
    )
    parser.add_argument("--search", action="store_true", help="search each one's best setting in the first scene")
    parser.add_argument("--target", type=float, default=TARGET, help="accuracy (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of one run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            rows = compare(options, stack)
    except Interrupted:
        return 130
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
