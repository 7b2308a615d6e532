"""Detects a launcher's notice that it will end this process and restart it: the signal that ``PACELINE_LEAVE_ON``
names.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress

from paceline.errors import CannotAttach


def never() -> bool:
    """No signal is configured."""
    return False


def notice_by(name: str) -> Callable[[], bool]:
    """Return a function that reports whether the signal of that name (USR1, SIGTERM) has arrived; without a name,
    always False.

    A thread waits for the signal. It is blocked in all other threads: processes that this one starts, such as a
    DataLoader's workers, inherit the mask, and survive a launcher that signals all of them.

    Raises:
        CannotAttach: if there is no such signal.
    """
    if not name:
        return never
    number = _number(name)
    came = threading.Event()
    with suppress(ValueError):  # not in the main thread
        # For threads that libraries started earlier, which do not block the signal.
        signal.signal(number, lambda received, frame: came.set())
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def wait() -> None:
        while True:
            signal.sigwait({number})
            came.set()

    threading.Thread(target=wait, name="paceline notice", daemon=True).start()
    return came.is_set


def _number(name: str) -> signal.Signals:
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except KeyError:
        raise CannotAttach(f"PACELINE_LEAVE_ON is {name!r}; give the name of a signal, such as USR1") from None
