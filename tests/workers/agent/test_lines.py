"""A process's output as lines: what level they have, what they never tell, and how floods are cut short."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.messages import MAX_LINE, Line, ProcessName
from workers.log_buffer import MOST, LogBuffer
from workers.spawner.lines import BURST, PER_S, TAIL_LINES, Lines

W0 = ProcessName(job=7, role="worker", index=0, instance="w0.0.1")
W1 = ProcessName(job=7, role="worker", index=1, instance="w1.0.1")


def told(lines: Lines, output: bytes) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line, _ in lines.take(output)]


def test_our_log_lines_keep_their_level_and_fields() -> None:
    body = b'{"event": "connected", "attempt": 2, "level": "warning", "job": 7, "process": "w0", "timestamp": "now"}'
    assert told(Lines(), b"<4>" + body + b"\n") == [("warning", "connected attempt=2")]


def test_anything_else_is_output_and_a_traceback_is_an_error() -> None:
    output = b"epoch 1\nTraceback (most recent call last):\n  File x\nValueError: no\nepoch 2\n<6>not json\n"
    assert told(Lines(), output) == [
        ("output", "epoch 1"),
        ("error", "Traceback (most recent call last):"),
        ("error", "  File x"),
        ("error", "ValueError: no"),
        ("output", "epoch 2"),
        ("output", "<6>not json"),
    ]


@pytest.mark.parametrize("body", [b'{"event": "\xff"}', b"[" * 100_000], ids=["not UTF-8", "too deep"])
def test_a_line_that_only_looks_like_a_log_line_is_output(body: bytes) -> None:
    [(level, text)] = told(Lines(), b"<6>" + body + b"\n")
    assert level == "output"
    assert text.startswith("<6>")


def test_secrets_are_never_shown() -> None:
    lines = Lines(secrets=["5ec7e7" * 8])
    text = "key " + "5ec7e7" * 8 + " Authorization: Bearer abcdefgh123 password=hunter22 token: 'zzzzzzzz'"
    assert told(lines, text.encode() + b"\n") == [
        ("output", "key [secret] Authorization: Bearer [secret] password=[secret] token: '[secret]'")
    ]
    lines.take(b"the end " + b"5ec7e7" * 8)
    assert lines.end().endswith("the end [secret]")


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_lines_do_not_depend_on_how_the_output_was_read(output: bytes, cuts: list[int]) -> None:
    whole, pieces, found = Lines(), Lines(), []
    places = sorted({0, len(output), *(min(cut, len(output)) for cut in cuts)})
    for start, end in pairwise(places):
        found += told(pieces, output[start:end])
    assert found == told(whole, output)
    assert pieces.end() == whole.end()
    assert all(len(text) <= MAX_LINE for _, text in found)


def test_the_end_of_the_output_is_kept() -> None:
    lines = Lines()
    lines.take(b"".join(b"line %d\n" % number for number in range(100)) + b"no end")
    assert lines.end().split("\n") == [*(f"line {number}" for number in range(100 - TAIL_LINES, 100)), "no end"]


def test_a_flood_is_cut_short_and_reports_it() -> None:
    lines = Lines()
    flood = [Line(level="output", text=str(number)) for number in range(BURST + 50)]
    assert lines.allowed(flood, 1000.0) == flood[:BURST]
    assert lines.allowed(flood[:10], 1000.0) == []
    first, *rest = lines.allowed(flood[:10], 1000.0 + 10 / PER_S)
    assert (first.level, first.text) == ("warning", f"60 lines were left out: more than {PER_S:.0f} a second")
    assert rest == flood[:10]


def test_what_waits_is_bounded_and_what_was_let_go_is_counted() -> None:
    box = LogBuffer()
    box.add(W0, [Line(level="info", text=str(number)) for number in range(30)])
    box.add(W1, [Line(level="info", text=str(number)) for number in range(MOST)])
    box.add(W0, [Line(level="error", text="last")])
    sent = [message for _ in range(10) for message in box.take()]
    assert sum(len(message.lines) + message.dropped for message in sent) == MOST + 31
    assert max(len(message.lines) for message in sent) == 100
    assert (sent[-1].process, sent[-1].lines[-1].text, sent[-1].dropped) == (W0, "last", 30)
    assert sent[0].dropped == 1
