"""Parses the output of one process into lines: keeps levels, removes secrets, limits the rate. Time is an argument.

Log lines of Paceline have the form ``<level>{json}``, with syslog's numbers. Other output has the level ``output``, and
tracebacks the level ``error``.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.messages import MAX_LINE, Line, LineLevel

TAIL_LINES: Final = 20
TAIL_BYTES: Final = 4096
LONGEST_BYTES: Final = 64 * 1024
"""Maximum length of a line; the beginning of a longer line is dropped."""

PER_S: Final = 100.0
BURST: Final = 500
"""Rate limit of one process's lines: burst size, and lines per second."""

LEVELS: Final[dict[bytes, LineLevel]] = {b"7": "debug", b"6": "info", b"4": "warning", b"3": "error", b"2": "error"}
_STRUCTURED = re.compile(rb"<([2-7])>(\{.*\})\Z", re.DOTALL)
_SECRETS = re.compile(r"(?i)\b(bearer\s+|(?:token|secret|password|api[_-]?key|key)\s*[=:]\s*['\"]?)[^\s'\"]{6,}")
_HIDDEN = ("level", "timestamp", "event", "exception", "job", "process")


class Lines:
    """The lines of one process. ``secrets``: values to remove from its output."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if secret]
        self._rest = b""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._allowance, self._asked_to_end_s = float(BURST), 0.0
        self._dropped = 0
        self._in_traceback = False

    def take(self, piece: bytes) -> list[tuple[Line, dict[str, Any]]]:
        """Return the lines that this output completes, each with the fields of a log line."""
        *complete, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-LONGEST_BYTES:]
        lines = [self._line(raw) for raw in complete]
        self._tail.extend(line.text for line, _ in lines)
        return lines

    def end(self) -> str:
        """Return the end of the output, as text."""
        last = [self._line(self._rest)[0].text] if self._rest else []
        return "\n".join([*self._tail, *last])[-TAIL_BYTES:]

    def allowed(self, lines: Sequence[Line], now_s: float) -> list[Line]:
        """Return the lines within the rate limit; the next line that is returned reports how many were dropped."""
        self._allowance = min(float(BURST), self._allowance + (now_s - self._asked_to_end_s) * PER_S)
        self._asked_to_end_s = now_s
        room = int(self._allowance)
        kept = list(lines[:room])
        self._allowance -= len(kept)
        if kept and self._dropped:
            text = f"{self._dropped} lines were left out: more than {PER_S:.0f} a second"
            kept.insert(0, Line(level="warning", text=text))
            self._dropped = 0
        self._dropped += max(0, len(lines) - room)
        return kept

    def _line(self, raw: bytes) -> tuple[Line, dict[str, Any]]:
        found = _STRUCTURED.match(raw)
        fields = _decoded(found[2]) if found else None
        if found is None or fields is None:
            return self._raw_line(raw.decode(errors="replace")), {}
        level = LEVELS.get(found[1], "info")
        extra = " ".join(f"{key}={value}" for key, value in fields.items() if key not in _HIDDEN)
        text = " ".join(part for part in (str(fields.get("event", "")), extra) if part)
        if exception := fields.get("exception"):
            text = f"{text}\n{exception}"
        return Line(level=level, text=self._clean(text)), fields

    def _raw_line(self, text: str) -> Line:
        """A traceback continues while lines are indented, and ends with the exception."""
        if text.startswith("Traceback (most recent call last)"):
            self._in_traceback = True
            return Line(level="error", text=self._clean(text))
        level: LineLevel = "error" if self._in_traceback else "output"
        self._in_traceback &= text.startswith(" ")
        return Line(level=level, text=self._clean(text))

    def _clean(self, text: str) -> str:
        """Without secrets and control characters, limited in length."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        text = _SECRETS.sub(r"\1[secret]", text)
        text = "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
        return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 12]} [cut short]"


def _decoded(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
