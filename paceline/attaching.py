"""``paceline.attach()``: registers this rank with a job, from the environment that ``paceline run`` sets."""

import logging
import os

from paceline.ceilings import Ceiling
from paceline.control import Control
from paceline.ending import watch_for_the_end
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
    """Return the pacer of this process. Without a control plane, training runs unchanged.

    Args:
        rank: the rank; None: from torch.distributed or the launcher.
        world: number of ranks; None: likewise.
        url: of the control plane; None: ``PACELINE_URL``.
        job: the job's number; None: ``PACELINE_JOB``.
        token: of that job; None: ``PACELINE_TOKEN``.

    Raises:
        CannotAttach: if the rank, the world size or the address is invalid.
    """
    who = identity(rank, world)
    aim = target(url, job, token)
    control = _control(who, aim)
    ceiling = Ceiling(aim if control is not None else None, who.rank)
    notice = notice_by(os.environ.get("PACELINE_LEAVE_ON", "")) if control is not None else never
    pacer = Pacer(who, control, ceiling, notice=notice)
    if any(name in os.environ for name in TRACKERS):
        from paceline.adapters.trackers import forward

        # Registered first, so that the handler for the end of the process runs after the last iteration.
        forward(pacer)
    watch_for_the_end(pacer)
    return pacer


def _control(who: Identity, aim: Target) -> Control | None:
    if missing := aim.missing:
        if who.rank == 0:
            others = f"{', '.join(missing)} not set" if len(missing) < len(aim) else "PACELINE_URL is not set"
            log.warning("paceline: %s: shares stay equal. Start the script with `paceline run` to balance them", others)
        return None
    return control_of(who, aim)


def control_of(who: Identity, aim: Target) -> Control:
    """Return the connection of one rank to the control plane of its job.

    Raises:
        CannotAttach: if the address or the number cannot be used.
    """
    from paceline.address import socket_address
    from paceline.link import SocketLink

    number = aim.number
    address = socket_address(aim.url, f"/ws/rank/{number}/{who.rank}")
    link = SocketLink(address, aim.token, f"rank {who.rank} of job {number}")
    return Control(link, who)
