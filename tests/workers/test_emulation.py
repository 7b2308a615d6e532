import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.emulation import Competitor, Emulation, TracePoint, parse_emulation, read_trace
from controlplane.protocol.parts import SpecError
from workers.emulation import Course, Pace, Rival
from workers.resources import Load


class Machine:
    """A clock that moves by working and resting."""

    def __init__(self) -> None:
        self.now = 50.0
        self.rests: list[float] = []

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def pace(self, speed: float | None) -> Pace:
        emulation = None if speed is None else Emulation(samples_per_second=speed)
        return Pace(emulation, rest=self.rest, now=lambda: self.now)


@pytest.mark.parametrize(
    ("speed", "samples", "worked_s", "took_s", "overran"),
    [
        pytest.param(100.0, 50, 0.1, 0.5, False, id="a slow machine rests until its time is up"),
        pytest.param(100.0, 50, 0.75, 0.75, True, id="work that took longer is an overrun"),
        pytest.param(100.0, 50, 0.5, 0.5, False, id="just in time"),
        pytest.param(100.0, 0, 0.001, 0.001, False, id="no samples cannot overrun"),
        pytest.param(None, 50, 0.1, 0.1, False, id="no emulation, no rest"),
    ],
)
def test_samples_take_their_time(
    speed: float | None, samples: int, worked_s: float, took_s: float, overran: bool
) -> None:
    machine = Machine()
    pace = machine.pace(speed)
    machine.now += 9.0
    pace.begin()
    machine.now += worked_s
    assert pace.finish(samples) is overran
    assert machine.now == pytest.approx(59.0 + took_s)


def test_each_iteration_is_timed_from_its_own_beginning() -> None:
    machine = Machine()
    pace = machine.pace(10.0)
    for _ in range(3):
        machine.now += 1.0
        pace.begin()
        machine.now += 0.25
        pace.finish(5)
    assert machine.rests == pytest.approx([0.25, 0.25, 0.25])


def test_a_gpu_takes_time_to_launch_and_none_less_below_its_saturation() -> None:
    course = Course(Emulation(samples_per_second=100.0, launch_s=0.5, saturation=16))
    taken = [course.done_at(1.0, samples) - 1.0 for samples in (0, 4, 16, 50)]
    assert taken == pytest.approx([0.0, 0.66, 0.66, 1.0])


@pytest.mark.parametrize("field", ["launch_s", "saturation"])
def test_a_gpus_time_by_its_batch_needs_a_speed(field: str) -> None:
    with pytest.raises(SpecError, match="samples_per_second with launch_s and saturation"):
        parse_emulation({"slower": 2.0, field: 1}, "emulate[0]")


TRACE = [
    TracePoint(time=0.0, speed=100.0, cpu=0.2, memory=0.1),
    TracePoint(time=10.0, speed=50.0, cpu=0.8, memory=0.3),
]


def test_a_trace_drives_speed_and_the_reported_load_together() -> None:
    course = Course(Emulation(trace=TRACE))
    assert (course.done_at(0.0, 200), course.done_at(20.0, 200)) == (2.0, 24.0)
    assert course.done_at(9.0, 200) == 12.0  # one second at 100, two at 50
    real = Load(cpu=0.9, memory=0.9)
    assert [course.load(at, real) for at in (9.9, 10.0)] == [Load(cpu=0.2, memory=0.1), Load(cpu=0.8, memory=0.3)]


def test_a_repeating_trace_restarts_after_its_last_point() -> None:
    course = Course(Emulation(trace=TRACE, repeat=True))
    assert (course.done_at(19.0, 150), course.done_at(20.0, 100)) == (21.0, 21.0)
    assert course.done_at(0.0, 1500 * 10) == 200.0


@given(begin=st.floats(0, 100), samples=st.integers(0, 5000), more=st.integers(1, 100), repeat=st.booleans())
def test_more_samples_are_done_later_and_never_before_they_began(
    begin: float, samples: int, more: int, repeat: bool
) -> None:
    course = Course(Emulation(trace=TRACE, repeat=repeat, competitor=Competitor(begins=0.5, ends=0.5)))
    assert begin <= course.done_at(begin, samples) < course.done_at(begin, samples + more)


def test_a_competing_process_takes_its_part_while_it_runs_and_shows_in_the_load() -> None:
    rival = Competitor(begins=1.0, ends=1.0, takes=0.75)  # idle in even seconds
    course = Course(Emulation(samples_per_second=100.0, competitor=rival))
    assert (course.done_at(0.0, 100), course.done_at(1.0, 25), course.done_at(0.5, 100)) == (1.0, 2.0, 2.25)
    idle = Load(cpu=0.1, memory=0.5)
    assert [course.load(at, idle).cpu for at in (0.5, 1.5)] == pytest.approx([0.1, 0.85])


def test_chance_comes_from_the_seed_alone() -> None:
    runs = [[Rival(Competitor(seed=seed)).runs(at) for at in range(200)] for seed in (1, 1, 2)]
    assert (runs[0] == runs[1], runs[0] == runs[2]) == (True, False)


def test_emulated_slowness_multiplies_any_load() -> None:
    machine = Machine()
    pace = Pace(Emulation(slower=3.0), rest=machine.rest, now=lambda: machine.now)
    for worked_s in (0.1, 0.4):
        pace.begin()
        machine.now += worked_s
        assert not pace.finish(5)
    assert machine.rests == pytest.approx([0.2, 0.8])


def test_work_in_pieces_counts_no_pause_as_work() -> None:
    machine = Machine()
    pace = Pace(Emulation(slower=2.0), rest=machine.rest, now=lambda: machine.now)
    pace.begin()
    began = machine.now
    for done in (1, 2, 3):
        machine.now += 0.1
        pace.finish(done)
    assert machine.now - began == pytest.approx(0.6)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"samples_per_second": 5, "slower": 2},
        {"trace": []},
        {"trace": [{"time": 1, "speed": 5}]},
        {"trace": [{"time": 0, "speed": 5}, {"time": 0, "speed": 6}]},
        {"trace": [{"time": 0, "speed": 5}], "repeat": True},
        {"competitor": {"takes": 1.0}},
    ],
)
def test_what_is_no_machine_is_refused(document: object) -> None:
    with pytest.raises(SpecError, match=r"^machine: found"):
        parse_emulation(document, "machine")


def test_each_is_reported_as_text() -> None:
    told = [
        Emulation(samples_per_second=1000.0),
        Emulation(slower=3.0, competitor=Competitor()),
        Emulation(trace=TRACE),
    ]
    assert [each.description for each in told] == [
        "1,000 samples/s",
        "3 times slower, a competing process that takes 50%",
        "a trace of 2 points",
    ]


@pytest.mark.parametrize(
    "text", ["time,speed\n0,10\n5,20\n", "time , speed\n0, 10\n\n5, 20", "\ufefftime,speed\r0,10\r5,20"]
)
def test_a_trace_is_read_as_programs_write_it(text: str) -> None:
    assert read_trace(text) == [{"time": 0.0, "speed": 10.0}, {"time": 5.0, "speed": 20.0}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "found '', expected a first line that names columns: time,speed,cpu,memory"),
        ("time;speed\n0;1", "found 'time;speed', expected a first line"),
        ("time,time,speed\n0,0,1", "found 'time,time,speed', expected a first line"),
        ("time,speed\n0,1\n5", r"line 3: \['5'\].*, expected a number in each column, and no more"),
        ("time,speed\n0,1,99", r"line 2: \['0', '1', '99'\].*, expected a number in each column, and no more"),
        ("time,speed\n0,fast", r"line 2: \['0', 'fast'\]"),
        ("time,speed\n0," + "1" * 200_000, r"found 'line 2', expected numbers with commas between \(field larger"),
    ],
)
def test_a_broken_line_of_a_trace_is_named(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        read_trace(text)
