"""Runs Python's cyclic garbage collector less often in a process that only simulates.

A run of 10,000 workers holds some 100,000 objects for long, makes and drops millions, and leaves no cycles behind: at
the usual thresholds the collector takes a quarter to a third of its time (``manage.py bench simulator``).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SELDOM: Final = (100_000, 50, 100)
"""How many more objects there must be than when it looked last; how often the young and the middle ones are looked at
between two looks at the next older ones."""


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """For the whole process, until the end of the block."""
    usual = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
