"""Log lines never end what they are about."""

import io
import json
import logging

import pytest
import structlog

from workers import logs


def test_lines_go_to_the_current_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(json=True)
    later = io.StringIO()
    monkeypatch.setattr("sys.stderr", later)
    structlog.get_logger("agent").info("connected", attempt=2)
    line = json.loads(later.getvalue())
    assert (line["event"], line["level"], line["attempt"]) == ("connected", "info", 2)


def test_a_reader_that_went_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure()
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    structlog.get_logger("agent").info("nobody reads this")


def test_lines_of_standard_library_loggers_have_the_same_format(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(json=True)
    later = io.StringIO()
    monkeypatch.setattr("sys.stderr", later)
    logging.getLogger("workers.trainer").info("server %d is away", 1)
    line = json.loads(later.getvalue())
    assert (line["event"], line["level"]) == ("server 1 is away", "info")
