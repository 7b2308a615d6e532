"""Close codes: why a socket was ended, for machines. A test holds them to the table in ``docs/operating.md``."""

from dataclasses import dataclass
from typing import Final

MALFORMED: Final = 4400
"""It does not speak our protocol, or sent several malformed frames in a row."""

UNAUTHORISED: Final = 4401
"""The credential is not that of this process, agent or person."""

SLOW: Final = 4408
"""It did not take what was sent to it for too long, or said nothing at first."""

REPLACED: Final = 4409
"""A newer connection of the same process or agent has taken its place."""

JOB_OVER: Final = 4410
"""The job is over."""

OVERSIZED: Final = 4413
"""A message was larger than any may be."""

FLOOD: Final = 4429
"""It was held back for sending too fast, and did not slow down."""

TRY_AGAIN: Final = 1013
"""Redis is out of reach, or the job's log is being recovered: come back, and say again what is not durable."""

MEANING: Final = {
    TRY_AGAIN: "come back: Redis is out of reach, or the job's log is being recovered",
    MALFORMED: "another protocol, or three malformed frames in a row",
    UNAUTHORISED: "the credential is not that of this process, agent or person",
    SLOW: "the reader took nothing for 5 s, 1,000 messages waited for it, or a machine said nothing for 10 s at first",
    REPLACED: "a newer connection of the same process or agent has taken its place",
    JOB_OVER: "the job is over",
    OVERSIZED: "a message above 256 KiB (pages: 1 KiB); above 1 MiB the code is 1009",
    FLOOD: "above 5,000 messages a second (pages: 10) for 10 s; it was held back meanwhile",
}
"""For people."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody is not let in: the code to close with, and a message to say before, if any."""

    code: int
    words: bytes = b""
