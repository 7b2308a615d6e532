"""``paceline.attach()``: this rank's part in a job, by the environment that ``paceline run`` sets, or alone."""

import atexit
import logging
import os
import sys
import threading
from types import TracebackType

from paceline.ceilings import Ceiling
from paceline.control import Control
from paceline.identity import Identity, identity
from paceline.notice import never, notice_by
from paceline.pacer import Pacer
from paceline.variables import TRACKERS, Target, target

log = logging.getLogger("paceline")


def attach(
    *,
    rank: int | None = None,
    world: int | None = None,
    url: str | None = None,
    job: int | None = None,
    token: str | None = None,
) -> Pacer:
    """The pacer of this process. Without a control plane, training runs unchanged.

    Args:
        rank: its rank; None: as the launcher says, or torch.distributed.
        world: how many ranks there are; None: likewise.
        url: of the control plane; None: ``PACELINE_URL``.
        job: its number; None: ``PACELINE_JOB``.
        token: of that job; None: ``PACELINE_TOKEN``.

    Raises:
        CannotAttach: if rank, world or the address make no sense.
    """
    who = identity(rank, world)
    aim = target(url, job, token)
    control = _control(who, aim)
    ceiling = Ceiling(aim.job if control is not None else None, who.rank)
    notice = notice_by(os.environ.get("PACELINE_LEAVE_ON", "")) if control is not None else never
    pacer = Pacer(who, control, ceiling, notice=notice)
    if any(name in os.environ for name in TRACKERS):
        from paceline.adapters.trackers import forward

        # First: then the handler that it registers for the end of the process runs after the last iteration.
        forward(pacer)
    atexit.register(pacer.close)
    if control is not None and "ray.train" in sys.modules and threading.current_thread() is not threading.main_thread():
        _close_behind(threading.current_thread(), pacer)
    _watch_for_the_end(pacer)
    return pacer


def _close_behind(loop: threading.Thread, pacer: Pacer) -> None:
    """Close it once Ray's training loop has returned: Ray ends its workers without running exit handlers."""

    def close() -> None:
        loop.join()
        pacer.close()

    threading.Thread(target=close, name="paceline-end", daemon=True).start()


def _control(who: Identity, aim: Target) -> Control | None:
    if missing := aim.missing:
        if who.rank == 0:
            others = f"{', '.join(missing)} not set" if len(missing) < len(aim) else "no control plane is named"
            log.warning(
                "paceline: %s: shares stay even. Start the script by `paceline run` to have them balanced", others
            )
        return None
    return control_of(who, aim)


def control_of(who: Identity, aim: Target) -> Control:
    """The connection of one rank to the control plane of its job.

    Raises:
        CannotAttach: if the address or the number cannot be used.
    """
    from paceline.address import socket_address
    from paceline.link import SocketLink

    number = aim.number
    address = socket_address(aim.url, f"/ws/rank/{number}/{who.rank}")
    link = SocketLink(address, aim.token, f"rank {who.rank} of job {number}")
    return Control(link, who)


def _watch_for_the_end(pacer: Pacer) -> None:
    """An uncaught exception does not complete the loop; running out of memory sets a ceiling."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        try:
            pacer.failed(error)
        finally:
            before(kind, error, traceback)

    sys.excepthook = hook
