"""Holds services back while tables are migrated: they are started before, and import meanwhile.

To import takes each of them about as long as all migrations of an empty database. A gate is a file: it is there from
before the services are started until the tables are, and its path travels in their environment.
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
    """What the environment of services has to have, so that they wait until the end of the block."""
    gate = folder / FILE
    gate.touch(mode=0o600)
    try:
        yield {VARIABLE: str(gate)}
    finally:
        gate.unlink(missing_ok=True)


def await_gate() -> None:
    """Wait for the end of the block, in a service; at once where nobody holds it back."""
    gate = os.environ.pop(VARIABLE, "")
    while gate and Path(gate).exists():
        time.sleep(LOOK_S)
