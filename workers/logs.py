"""Logging of agents and their processes to standard error, as text or JSON. Keys and tokens are never logged.

The reader may disconnect, and that must not end training: lines that cannot be written are dropped.
"""

import contextlib
import io
import logging
import sys
from collections.abc import MutableMapping
from json import dumps
from typing import Any, TextIO, cast

import structlog


class StandardError(io.TextIOBase):
    """The current ``sys.stderr``, with its errors ignored."""

    def write(self, text: str) -> int:
        """Write; errors are ignored."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; errors are ignored."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


NUMBERS = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Syslog's numbers of these levels."""


def configure_child() -> None:
    """Log to a process whose output an agent reads: each line as ``<level>{json}``, which the agent logs."""
    _configure(_numbered)


def _numbered(logger: object, name: str, event: MutableMapping[str, Any]) -> str:
    return f"<{NUMBERS.get(str(event.get('level')), 6)}>{dumps(dict(event), default=str)}"


def configure(*, json: bool = False) -> None:
    """Set up logging for this process and its forks: structlog, and the standard library."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    _configure(renderer)


def _configure(renderer: structlog.typing.Processor) -> None:
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    stream = cast(TextIO, StandardError())
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    ours = logging.getLogger("workers")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)
