"""What forked processes do in these tests: the name of the job's spec says which. ``setup.url`` is a folder here."""

import os
import signal
import sys
from pathlib import Path

from controlplane.protocol.orders import ProcessOrder
from workers.setup import Setup


def act(order: ProcessOrder, setup: Setup) -> int:
    """Say that we are there, then behave as named."""
    name = order.spec.name
    if name == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if name == "polite":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    there(setup, order).write_text(str(os.getpid()))
    if name == "fail":
        raise ValueError("no such data set")
    if name == "chatter":
        return _chatter()
    if name == "show-environment":
        print(os.environ.get("PACELINE_TOKEN"), os.environ["OMP_NUM_THREADS"])  # noqa: T201
    while name in {"wait", "polite", "stubborn"}:
        signal.pause()
    return 0


def there(setup: Setup, order: ProcessOrder) -> Path:
    """The file that appears once the process of ``order`` runs and has its signals set."""
    return Path(os.environ.get("TEST_FOLDER") or setup.url) / f"{order.role}-{order.index}-{order.instance}"


def _chatter() -> int:
    for line in range(5000):
        print(f"line {line}", file=sys.stderr)  # noqa: T201
    print("no newline at the end", end="")  # noqa: T201
    return 3
