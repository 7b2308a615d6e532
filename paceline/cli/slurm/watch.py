"""``paceline slurm watch``: ends a job on one side where it has ended on the other while no batch script runs.

The script of a running Slurm job reports its end itself. One that was cancelled in the queue, or lost its node together
with the script, reports nothing; and a job that was stopped here remains in Slurm's queue. Any number of watchers may
be started for a folder: one watches, the others exit.
"""

import fcntl
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from paceline.cli import access, private
from paceline.cli.errors import OK, Refusal
from paceline.cli.places import environment
from paceline.cli.run import OVER, say
from paceline.cli.slurm import queue
from paceline.cli.slurm.sides import number_of
from paceline.client.sync import Client
from paceline.client.types import Job
from paceline.errors import Refused, Unreachable

LOOK_S: Final = 30.0
RECORD: Final = "slurm-job"
LOG: Final = "watch.log"
TOKENS: Final = ("token", "enrolment-token")
NOT_FOUND: Final = 404


class Record(msgspec.Struct, frozen=True):
    """A submission: the job here, Slurm's job, and the folder that it is stored in."""

    job: int
    slurm: int
    folder: Path


def note(folder: Path, url: str, number: int) -> None:
    """Store which job of Slurm's belongs to the job of this folder."""
    private.write(folder / RECORD, f"{number} {url}\n")


def start(folder: Path, url: str, token_file: Path | None) -> None:
    """Start a watcher of the folder's jobs that outlives this command, and ends when they have."""
    command = [sys.executable, "-m", "paceline", "slurm", "watch", "--folder", str(folder), "--url", url]
    if token_file is not None:
        command += ["--token-file", str(token_file.absolute())]
    with (folder / LOG).open("ab") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(os.environ),
            start_new_session=True,
        )


def carry_out(options: Namespace) -> int:
    """Watch until all jobs of the folder have ended.

    Raises:
        Refusal: if the folder cannot be read, or the control plane refuses the token.
    """
    folder: Path = options.folder.absolute()
    with access.connected(options) as client:
        while records(folder, client.url):
            with _alone(folder, client.url) as alone:
                if not alone:
                    say(f"another process watches {folder}")
                    return OK
                watch(client, folder, options.every)
    return OK


def watch(client: Client, folder: Path, every_s: float) -> None:
    """Look at all jobs of the folder until none is left."""
    missing: set[int] = set()
    while True:
        try:
            missing = look(client, folder, missing)
        except (Unreachable, Refusal) as error:
            say(f"{error}; the next look is in {every_s:g} s")
        if not records(folder, client.url):
            return
        time.sleep(every_s)


def look(client: Client, folder: Path, missing: set[int]) -> set[int]:
    """Look once at each job; which ones Slurm does not run though they should be, to be ended at the next look.

    Raises:
        Refusal: if Slurm does not answer.
        PacelineError: if the control plane does not.
    """
    found = records(folder, client.url)
    there: dict[int, list[queue.Entry]] = {}  # several, where a script was submitted again
    for entry in queue.entries() if found else []:
        if (number := number_of(client, entry)) is not None:
            there.setdefault(number, []).append(entry)
    now_missing = set()
    for record in found:
        job = _job(client, record.job)
        if job is None or job.is_over:
            if pending := [entry.id for entry in there.get(record.job, []) if entry.state == "PENDING"]:
                say(f"job {record.job} is over: Slurm job {', '.join(map(str, pending))}, which waits, is cancelled")
                queue.cancel_pending(pending)
            _forget(record)
        elif record.job not in there:
            facts = queue.facts(record.slurm)
            if record.slurm in missing or _never_started(facts):
                _stop(client, record, _reason(record.slurm, facts))
            else:  # its script may be reporting the end
                now_missing.add(record.slurm)
    return now_missing


def records(folder: Path, url: str) -> list[Record]:
    """The submissions to this control plane whose job has not ended yet."""
    found = []
    for file in sorted(folder.glob(f"job-*/{RECORD}")):
        with suppress(OSError, ValueError):
            slurm, where = file.read_text().split()
            if where == url:
                found.append(Record(int(file.parent.name.removeprefix("job-")), int(slurm), file.parent))
    return found


def _job(client: Client, number: int) -> Job | None:
    try:
        return client.job(number)
    except Refused as refusal:
        if refusal.status == NOT_FOUND:
            return None
        raise


def _never_started(facts: Mapping[str, str]) -> bool:
    """Whether Slurm ended the job in its queue: no script of it ran."""
    return queue.is_ending(facts) and facts.get("RunTime") == "00:00:00"


def _reason(number: int, facts: Mapping[str, str]) -> str:
    if _never_started(facts) and facts.get("JobState", "").startswith("CANCELLED"):
        return f"Slurm job {number} was cancelled before it started"
    if not facts:
        return f"Slurm job {number} has left the queue, and its script did not report how it ended"
    return f"Slurm job {number} ended ({facts['JobState']}), and its script did not report it"


def _stop(client: Client, record: Record, reason: str) -> None:
    say(f"job {record.job} is stopped: {reason}")
    try:
        client.stop(record.job, reason=reason)
    except Refused as refusal:
        if refusal.status != OVER:
            raise
    _forget(record)


def _forget(record: Record) -> None:
    """Remove the record and the tokens, which are of no further use."""
    for name in (*TOKENS, RECORD):
        with suppress(OSError):
            (record.folder / name).unlink()


@contextmanager
def _alone(folder: Path, url: str) -> Iterator[bool]:
    """Whether no other process watches the folder for this control plane; while inside, no other one does."""
    file = folder / f"watch-{re.sub('[^A-Za-z0-9.]+', '-', url)}.lock"
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Refusal(f"--folder: {error}") from None
    try:
        yield _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
