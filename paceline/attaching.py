"""``paceline.attach()``: this rank's part in a job, by the environment that ``paceline run`` sets, or alone."""

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from paceline.ceilings import Ceiling
from paceline.control import Control
from paceline.errors import CannotAttach
from paceline.identity import Identity, identity
from paceline.notice import never, notice_by
from paceline.pacer import Pacer

TRACKERS: Final = ("PACELINE_TENSORBOARD", "PACELINE_MLFLOW", "PACELINE_WANDB")
"""Where each iteration is forwarded to, if anywhere; ``paceline run`` sets them."""

log = logging.getLogger("paceline")


def attach(
    *,
    rank: int | None = None,
    world: int | None = None,
    url: str | None = None,
    job: int | None = None,
    token: str | None = None,
) -> Pacer:
    """The pacer of this process. Where no control plane is named, training goes on as it would without it.

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
    given = {
        "PACELINE_URL": url or os.environ.get("PACELINE_URL", ""),
        "PACELINE_JOB": str(job) if job is not None else os.environ.get("PACELINE_JOB", ""),
        "PACELINE_TOKEN": token or os.environ.get("PACELINE_TOKEN", ""),
    }
    control = _control(who, given)
    ceiling = Ceiling(given["PACELINE_JOB"] if control is not None else None, who.rank)
    notice = notice_by(os.environ.get("PACELINE_LEAVE_ON", "")) if control is not None else never
    pacer = Pacer(who, control, ceiling, notice=notice)
    if any(name in os.environ for name in TRACKERS):
        from paceline.adapters.trackers import forward

        # First: what it registers for the end of the process then comes behind the last iteration.
        forward(pacer)
    atexit.register(pacer.close)
    _watch_for_the_end(pacer)
    return pacer


def _control(who: Identity, given: Mapping[str, str]) -> Control | None:
    missing = [name for name, value in given.items() if not value]
    if missing:
        if who.rank == 0:
            others = f"{', '.join(missing)} not set" if len(missing) < len(given) else "no control plane is named"
            log.warning(
                "paceline: %s: shares stay even. Start the script by `paceline run` to have them balanced", others
            )
        return None
    return control_of(who, given["PACELINE_URL"], given["PACELINE_JOB"], given["PACELINE_TOKEN"])


def control_of(who: Identity, url: str, number: str, token: str) -> Control:
    """One rank's conversation with that control plane, about that job.

    Raises:
        CannotAttach: if the address or the number cannot be used.
    """
    from paceline.address import socket_address
    from paceline.link import SocketLink

    if not number.isdigit():
        raise CannotAttach(f"PACELINE_JOB is {number!r}; give the number of the job")
    address = socket_address(url, f"/ws/rank/{number}/{who.rank}")
    link = SocketLink(address, token, f"rank {who.rank} of job {number}")
    return Control(link, who)


def _watch_for_the_end(pacer: Pacer) -> None:
    """An exception that nobody caught is no end of the loop; running short of memory teaches a ceiling."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        try:
            pacer.failed(error)
        finally:
            before(kind, error, traceback)

    sys.excepthook = hook
