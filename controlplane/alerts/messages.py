"""Formats messages about alerts: JSON, Slack and email. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controlplane.protocol.text import without_acting

COLOURS: Final[Mapping[str, str]] = {"info": "#0072b2", "warning": "#b26b00", "critical": "#c43c00"}
GOOD: Final = "#007a5a"
WORDS: Final[Mapping[str, str]] = {"firing": "Firing", "again": "Still firing", "resolved": "Resolved", "test": "Test"}
MOST_SUBJECT: Final = 150


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, fixed when it is queued, so that each attempt sends the same content."""

    notice: str
    rule: str
    kind: str
    severity: str
    summary: str
    url: str
    alert: int | None = None
    job: int | None = None
    value: float | None = None
    labels: dict[str, str] = {}
    since: str = ""
    fired_at: str = ""
    resolved_at: str = ""

    @property
    def title(self) -> str:
        """``Firing (critical): worker lost``."""
        return f"{WORDS[self.notice]} ({self.severity}): {self.rule}"


def body(message: Message, form: str) -> bytes:
    """The body of a webhook. Both formats have ``text``, which chat systems with Slack-compatible webhooks show."""
    return msgspec.json.encode(_slack(message) if form == "slack" else _document(message))


def subject(message: Message) -> str:
    """The subject of an email, on one line."""
    return without_acting(f"[Paceline] {message.title}")[:MOST_SUBJECT]


def text(message: Message) -> str:
    """The text of an email."""
    facts = {
        "Rule": f"{message.rule} ({message.kind}, {message.severity})",
        "Since": message.since,
        "Fired": message.fired_at,
        "Resolved": message.resolved_at,
        "Labels": ", ".join(f"{name}={value}" for name, value in sorted(message.labels.items())),
    }
    lines = [f"{name}: {fact}" for name, fact in facts.items() if fact]
    return "\n".join([message.summary, "", *lines, "", f"Details: {message.url}", ""])


def _document(message: Message) -> dict[str, Any]:
    return {"version": 1, "text": _line(message), **msgspec.to_builtins(message)}


def _slack(message: Message) -> dict[str, Any]:
    colour = GOOD if message.notice == "resolved" else COLOURS.get(message.severity, COLOURS["warning"])
    attachment = {
        "color": colour,
        "title": _escaped(message.title),
        "title_link": message.url,
        "text": _escaped(message.summary),
        "fallback": _escaped(_line(message)),
    }
    return {"text": _escaped(_line(message)), "attachments": [attachment]}


def _line(message: Message) -> str:
    return f"{message.title}: {message.summary} {message.url}"


def _escaped(words: str) -> str:
    """Escape Slack's markup characters: a job's name must not become a link or a mention."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
