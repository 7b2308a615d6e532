"""What the bench of the start makes of its measurements."""

import io

import pytest

from benchmarks.live import start
from benchmarks.live.start import Start


def a_start(**more: float) -> Start:
    return Start(**{"first_page_s": 4.0, "cpu_s": 6.0, "import_cpu_s": 1.2, "load": 1.0, **more})


def test_a_start_at_its_bars_passes() -> None:
    assert a_start().failures == []


def test_every_missed_bar_of_a_start_is_named_and_fails_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "measure", lambda rounds: a_start(first_page_s=4.3, import_cpu_s=1.25))
    out = io.StringIO()
    assert start.main([], out) == 1
    assert [line for line in out.getvalue().splitlines() if line.startswith("missed")] == [
        "missed: the first page came after 4.3 s, at most 4 expected",
        "missed: web imports for 1.25 CPU s, at most 1.2 expected",
    ]
