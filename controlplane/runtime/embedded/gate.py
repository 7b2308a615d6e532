"""Makes services wait until the tables are migrated. They are started earlier, and get ready meanwhile.

A service that is not forked imports its modules, which takes about as long as all migrations of an empty database. A
gate is a file: it exists from before the services start until the migrations are done, and its path is in their
environment.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VARIABLE: Final = "PACELINE_GATE"
FILE: Final = "migrating"
LOOK_S: Final = 0.02


@contextmanager
def closed_gate(folder: Path) -> Iterator[dict[str, str]]:
    """Environment variables that make services wait until the end of the block."""
    gate = folder / FILE
    gate.touch(mode=0o600)
    try:
        yield {VARIABLE: str(gate)}
    finally:
        gate.unlink(missing_ok=True)


def await_gate() -> None:
    """In a service: wait for the end of the block; returns immediately without a gate."""
    gate = os.environ.pop(VARIABLE, "")
    while gate and Path(gate).exists():
        time.sleep(LOOK_S)
