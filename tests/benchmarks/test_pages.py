"""What the bench of pages makes of what it saw."""

from benchmarks.live.browsers import Opening, median
from benchmarks.live.pages import failures, table

AT_THE_BARS = {"shown_s": 1.2, "words_s": 0.6, "again_s": 9.0, "first_bytes": 1_600_000, "again_bytes": 60_000}
SERVER = {"page_s": 0.1, "figure_s": 0.1, "cpu_s": 0.1, "json_bytes": 1_000_000}


def test_pages_at_their_bars_pass_and_what_was_not_measured_is_not_missed() -> None:
    assert failures({"overview": AT_THE_BARS, "jobs": AT_THE_BARS | {"words_s": None}, "no browser": SERVER}) == []


def test_every_missed_bar_of_a_page_is_named() -> None:
    above = {"shown_s": 1.25, "words_s": 0.7, "first_bytes": 1_600_001, "again_bytes": 60_001}
    assert failures({"overview": above}) == [
        "overview: shown after 1.25 s, at most 1.2 expected",
        "overview: verdict and lanes after 0.70 s, at most 0.6 expected",
        "overview: 1,600,001 bytes over the wire (first), at most 1,600,000 expected",
        "overview: 60,001 bytes over the wire (again), at most 60,000 expected",
    ]


def test_rounds_are_summed_up_by_their_medians() -> None:
    rounds = [Opening(shown_s=float(each), words_s=each / 2, wire_bytes=each * 10) for each in (3, 1, 2)]
    assert median(rounds) == Opening(shown_s=2.0, words_s=1.0, wire_bytes=20)
    assert median([Opening(shown_s=1.0, words_s=None, wire_bytes=1)]).words_s is None


def test_the_table_has_times_and_bytes_of_both_visits() -> None:
    views = {"overview": SERVER | AT_THE_BARS, "jobs": SERVER}
    document = {"workers": 64, "iterations": 10_000, "views": views, "load": 1.0, "left_out": "", "failures": []}
    lines = table(document).splitlines()
    assert lines[1].split()[-10:] == ["600", "ms", "1200", "ms", "9000", "ms", "1,600", "KB", "60", "KB"]
    assert lines[2].split()[-5:] == ["-"] * 5
