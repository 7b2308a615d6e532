"""Runs Python's cyclic garbage collector less often in the services.

A pass looks at every object that has survived, and a thousand sockets have a hundred thousand. Each message replaces
some of them, which Python takes for growth: with its thresholds, passes took 16 % of a core in web, a fifth of its
time (``bench fleet --workers 1000``). Reference counts free nearly everything here; cycles remain of connections and
requests that end, a few hundred objects each.
"""

import gc
from functools import cache
from typing import Final

EVERY: Final = 20_000
"""Additional objects after which garbage is collected."""


@cache
def collect_seldom() -> None:
    """Apply this to the process, and exclude its present objects: they are those of its start, which are permanent."""
    gc.freeze()
    gc.set_threshold(EVERY)
