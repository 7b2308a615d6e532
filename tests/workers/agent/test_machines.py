"""What the slots of a machine are made to be by its options."""

from pathlib import Path

import pytest

from controlplane.protocol.emulation import Competitor, Emulation, TracePoint
from workers.machines import UsageError, machines_of


def test_there_is_one_for_each_slot() -> None:
    fast, slow = Emulation(samples_per_second=1000.0), Emulation(samples_per_second=250.0)
    assert machines_of(None, None, None) == [None]
    assert machines_of(None, None, 2) == [None, None]
    assert machines_of("1000,250", None, None) == [fast, slow]
    assert machines_of("1000", None, 3) == [fast, fast, fast]


def test_they_may_be_slower_than_real_or_follow_a_file_or_have_company(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text("time,speed,cpu\n0,100,0.5\n60,50,0.9\n")
    rival = Competitor(begins=0.1, ends=0.2, takes=0.5, seed=3)
    points = [TracePoint(time=0.0, speed=100.0, cpu=0.5), TracePoint(time=60.0, speed=50.0, cpu=0.9)]
    assert machines_of(f"x3, @{file}", "0.1,0.2,0.5,3", None) == [
        Emulation(slower=3.0, competitor=rival),
        Emulation(trace=points, competitor=rival),
    ]
    assert machines_of(None, "0.1,0.2,0.5,3", 2) == [Emulation(competitor=rival)] * 2


@pytest.mark.parametrize(
    ("emulate", "competitor", "sentence"),
    [
        ("1000,250", None, "--emulate names 2 machines for --slots 3: give one, or one per slot"),
        ("0", None, "--emulate '0': Expected `float` > 0.0"),
        ("nan", None, "--emulate 'nan'"),
        ("x0.5", None, "--emulate 'x0.5': Expected `float` >= 1.0"),
        ("@/no/such.csv", None, "--emulate '@/no/such.csv': No such file or directory"),
        (None, "0.1", "--competitor '0.1': expected BEGINS,ENDS,TAKES"),
        (None, "0.1,0.1,2", "--competitor '0.1,0.1,2': Expected `float` < 1.0"),
    ],
)
def test_what_cannot_be_read_is_named(emulate: str | None, competitor: str | None, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        machines_of(emulate, competitor, 3)
    assert str(caught.value).startswith(sentence)


def test_a_file_that_is_no_trace_is_refused_with_the_format(tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    for text, sentence in (
        ("a,b\n1,2\n", "a first line that names columns"),
        ("time,speed\n0,x\n", r"found \"line 2: \['0', 'x'\]\", expected a number in each"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=sentence):
            machines_of(f"@{file}", None, None)
    file.write_bytes(b"\xff\xfe\x00time")
    with pytest.raises(UsageError, match="found bytes that are not text, expected lines of a CSV file"):
        machines_of(f"@{file}", None, None)
