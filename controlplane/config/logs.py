"""Configures logging of Paceline, Django, Celery and uvicorn: key-value lines, or JSON for collectors.

Tracebacks never include the values of variables, which may be keys and tokens.
"""

import sys
from typing import Any

import structlog

SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_config(*, log_format: str, level: str) -> dict[str, Any]:
    """A ``dictConfig`` that sends every logger through structlog to standard error."""
    processors = _json() if log_format == "json" else [_lines(colors=sys.stderr.isatty())]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": "structlog.stdlib.ProcessorFormatter",
                "foreign_pre_chain": SHARED,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *processors],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.server": {"handlers": [], "propagate": True},
            "django": {"handlers": [], "propagate": True},
            "uvicorn.access": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "celery": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Route ``structlog.get_logger()`` into the standard library's logging."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _json() -> list[Any]:
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(tracebacks), structlog.processors.JSONRenderer()]


def _lines(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    """The renderer of lines; without colours and boxes if the output is not a terminal."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
