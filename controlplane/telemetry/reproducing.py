"""Simulates the runs for rows of docs/reproduction.md in parallel, and reads and writes their results."""

import gc
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.protocol.base import Value
from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction.claims import Played, Run
from controlplane.simulator.reproduction.runs import play_run
from controlplane.simulator.reproduction.stored import Stored

WORTH_A_PROCESS = 4
"""Fewest runs per process."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that are set to 1, since the runs themselves are parallel."""

Key = tuple[Run, int]


class Done(Value, frozen=True, kw_only=True):
    """A line of the file of finished runs."""

    scenario: str
    policy: str
    to_target: bool
    seed: int
    played: Played


def play_all(
    keys: Sequence[Key], keep: Path | None, *, processes: int, stderr: object, silent: bool
) -> dict[Key, Played]:
    """The result of each run and seed; finished ones are read from the file ``keep``, and others are added to it."""
    known = _kept(keep)
    played = {key: known[key] for key in keys if key in known}
    missing = [key for key in keys if key not in played]
    if not missing:
        return played
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    console = Console(file=cast(IO[str], stderr))
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=silent, transient=True) as bar:
        task = bar.add_task("runs", total=len(keys), completed=len(played))
        for key, one in _side_by_side(missing, processes):
            played[key] = one
            _keep(keep, key, one)
            bar.advance(task)
    return played


def cost_of(played: Mapping[Key, Played]) -> dict[str, float]:
    """CPU time by scenario."""
    spent: dict[str, float] = {}
    for (run, _), one in played.items():
        spent[run.scenario] = spent.get(run.scenario, 0.0) + one.cpu_s
    return spent


def _side_by_side(keys: Sequence[Key], most: int) -> Iterable[tuple[Key, Played]]:
    """Run in parallel processes, each with several runs, since a process takes seconds to start."""
    processes = min(most, len(keys) // WORTH_A_PROCESS)
    return map(play_timed, keys) if processes < 2 else _in_processes(keys, processes)


def _in_processes(keys: Sequence[Key], processes: int) -> Iterator[tuple[Key, Played]]:
    for library in THREADS:
        os.environ.setdefault(library, "1")
    with multiprocessing.get_context("spawn").Pool(processes, initializer=gc.freeze) as pool:
        yield from pool.imap_unordered(play_timed, keys, chunksize=1)


def play_timed(key: Key) -> tuple[Key, Played]:
    """One run with its CPU time."""
    began = time.process_time()
    one = play_run(*key)
    return key, msgspec.structs.replace(one, cpu_s=time.process_time() - began)


def read_stored(path: Path) -> Stored:
    """The results of the last complete run.

    Raises:
        SimulationError: if there are none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Stored)
    except OSError as error:
        raise SimulationError(
            f"results: {path} cannot be read ({error.strerror}), expected the file that reproduce all writes"
        ) from None
    except msgspec.DecodeError as error:
        raise SimulationError(f"results: {path} has no results ({error}), expected those of reproduce all") from None


def write_stored(path: Path, stored: Stored) -> None:
    """One row per line, for readable diffs."""
    lines = [f'"first_seed":{stored.first_seed},"seeds":{stored.seeds},"runs":{stored.runs},']
    for paper, rows in stored.papers.items():
        lines.append(f'{"" if paper == next(iter(stored.papers)) else ","}"{paper}":[')
        lines.append(",\n".join(msgspec.json.encode(row).decode() for row in rows))
        lines.append("]")
    lines.insert(1, '"papers":{')
    lines.append("},")
    lines.append(f'"cost_s":{msgspec.json.encode(stored.cost_s, order="sorted").decode()}')
    path.write_text("{" + "\n".join(lines) + "}\n", encoding="utf-8")


def check_writable(name: str, path: Path | None) -> None:
    """Check before the simulations, which take minutes, that ``path`` can be written at the end."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise SimulationError(
            f"{name}: {path} cannot be written ({error.strerror}), expected a file in an existing folder"
        ) from None
    if is_new:
        path.unlink()


def _kept(path: Path | None) -> dict[Key, Played]:
    if path is None or not path.exists():
        return {}
    try:
        lines = [msgspec.json.decode(line, type=Done) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise SimulationError(f"keep: {path} has a line that is not a run ({error}): remove the file") from None
    return {(Run(one.scenario, one.policy, one.to_target), one.seed): one.played for one in lines}


def _keep(path: Path | None, key: Key, played: Played) -> None:
    if path is not None:
        run, seed = key
        done = Done(scenario=run.scenario, policy=run.policy, to_target=run.to_target, seed=seed, played=played)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(done) + b"\n")
