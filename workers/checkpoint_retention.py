"""Removes old checkpoints of jobs below an agent's checkpoint folder.

Only folders with a job's name are removed. A shared folder is cleaned by each agent; folders that another agent has
already removed are skipped.
"""

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from workers.setup import Setup

JOB_FOLDER: Final = re.compile(r"job-\d+-[0-9a-f]{12}")
DAY_S: Final = 86_400.0
log = structlog.get_logger("agent")


def start(setup: Setup) -> None:
    """Clean up now and then once per day, in a thread."""
    if setup.checkpoint_dir is not None and setup.keep_checkpoints_days:
        arguments = (Path(setup.checkpoint_dir), setup.keep_checkpoints_days * DAY_S)
        threading.Thread(target=_run, args=arguments, name="keeping", daemon=True).start()


def remove_old(root: Path, older_than_s: float, *, now: float) -> list[Path]:
    """Remove job folders last written to this long before ``now`` (seconds since the epoch); return them."""
    old = [folder for folder in _job_folders(root) if _written_at(folder) < now - older_than_s]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return old


def _run(root: Path, older_than_s: float) -> None:
    pause = threading.Event()
    while True:
        for folder in remove_old(root, older_than_s, now=time.time()):
            log.info(f"removed the checkpoints in {folder}: no job has added to them for {older_than_s / DAY_S:g} days")
        pause.wait(DAY_S)


def _job_folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (path for path in sorted(root.iterdir()) if JOB_FOLDER.fullmatch(path.name) and path.is_dir())


def _written_at(folder: Path) -> float:
    """The last write within the folder; files that vanish meanwhile count as new."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return time.time()
