"""WebSocket close codes and their meaning. A test compares them with the table in ``docs/operating.md``."""

from dataclasses import dataclass
from typing import Final

MALFORMED: Final = 4400
"""Wrong subprotocol, or several malformed frames in a row."""

UNAUTHORISED: Final = 4401
"""The credential does not belong to this process, agent or user."""

FOREIGN: Final = 4403
"""The process does not run on the machine whose relay it came through."""

SLOW: Final = 4408
"""The client did not read for too long, or sent no first message."""

REPLACED: Final = 4409
"""A newer connection of the same process or agent has replaced it."""

JOB_OVER: Final = 4410
"""The job is over."""

OVERSIZED: Final = 4413
"""A message exceeded the size limit."""

FLOOD: Final = 4429
"""The client stayed above the message rate limit, or its user has too many pages open."""

TRY_AGAIN: Final = 1013
"""Redis is unreachable, or the job's log is being recovered: reconnect and resend what is not durable."""

MEANING: Final = {
    TRY_AGAIN: "reconnect: Redis is unreachable, or the job's log is being recovered",
    MALFORMED: "wrong subprotocol, or three malformed frames in a row",
    UNAUTHORISED: "the credential does not belong to this process, agent or user, or has expired or been revoked",
    FOREIGN: "the process does not run on the machine through whose relay it connected; it reconnects by itself",
    SLOW: "the client read nothing for 5 s, 1,000 messages were queued for it, or a machine sent no message in 10 s",
    REPLACED: "a newer connection of the same process or agent has replaced it",
    JOB_OVER: "the job is over",
    OVERSIZED: "a message above 256 KiB (pages: 1 KiB); above 1 MiB the code is 1009",
    FLOOD: "above 5,000 messages per second (pages: 10) for 10 s, in spite of throttling; "
    "or more than 100 open pages of one user",
}
"""The meaning of each code, for logs and documents."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is refused: the close code, and a message to send before it, if any."""

    code: int
    message: bytes = b""
