import pytest

from controlplane.simulator.errors import ScenarioError, TraceError
from controlplane.simulator.google_trace import loads_of, read_task_usage, under
from controlplane.simulator.machines import GpuMachine, TracedMachine
from controlplane.simulator.running import simulate
from tests.simulator.worlds import alike, world

MINUTE_US = 60_000_000


def row(start: int, end: int, machine: str = "7", cpu: str = "0.1", memory: str = "0.05") -> str:
    """A line of the table, times in minutes."""
    fields = [str(start * MINUTE_US), str(end * MINUTE_US), "3418309", "0", machine, cpu, memory, *[""] * 13]
    return ",".join(fields)


def test_a_machines_load_is_the_sum_over_its_tasks() -> None:
    rows = read_task_usage([row(10, 15), row(10, 15, cpu="0.25"), row(15, 20, machine="8")])
    loads = loads_of(rows)
    assert loads["7"].cpu == pytest.approx([0.35, 0.0])
    assert loads["7"].memory == pytest.approx([0.1, 0.0])
    assert loads["8"].cpu == pytest.approx([0.0, 0.1])


def test_a_task_counts_by_the_part_of_a_step_for_which_it_ran() -> None:
    loads = loads_of(read_task_usage([row(0, 1, cpu="0.5"), row(0, 10, machine="8")]), step_s=300.0)
    assert loads["7"].cpu == pytest.approx([0.1, 0.0])


def test_a_load_is_a_fraction_of_what_the_machine_has() -> None:
    rows = read_task_usage([row(0, 5, cpu="0.2", memory="0.2")])
    load = loads_of(rows, capacities={"7": (0.5, 0.25)})["7"]
    assert (load.cpu, load.memory) == (pytest.approx([0.4]), pytest.approx([0.8]))
    assert load.machine(samples_per_second=10.0).step_s == 300.0


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([row(0, 5), row(0, 5, cpu="")], "task_usage, row 2: CPU rate is '', expected a number: leave the row out"),
        ([row(0, 5, cpu="-1")], "row 1: CPU rate is '-1', expected 0 or more"),
        ([row(0, 5, memory="nan")], "row 1: memory use is 'nan', expected 0 or more"),
        ([row(5, 5)], "row 1: ends at 3e[+]08 us, which is not after its start"),
        ([row(0, 5, machine="")], "row 1: machine ID is empty"),
        ([row(0, 5), "a\0b"], "row 2: .*, expected a line of text|row 2: 1 fields"),
        ([row(0, 5), "x" * 200_000], r"row 2: field larger than field limit .*, expected a line of text"),
        (["1,2,3"], "row 1: 3 fields, expected 20"),
        ([], "no rows, expected lines of 20 fields"),
    ],
)
def test_a_broken_row_is_refused_with_its_number_and_the_cure(lines: list[str], sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence):
        read_task_usage(lines)


def test_a_time_that_must_be_broken_is_refused_before_it_takes_all_memory() -> None:
    rows = read_task_usage([row(0, 5), row(10**12, 10**12 + 5)])
    with pytest.raises(
        TraceError, match=r"lasts from 0 to 6e\+13 s, expected at most 100000 steps of 300 s: leave out"
    ):
        loads_of(rows)


def test_a_scenario_runs_on_machines_that_others_use_as_recorded() -> None:
    loads = loads_of(read_task_usage([row(0, 600, machine=str(at), cpu="0.5") for at in range(4)]))
    usual, used = simulate(world(), "bsp"), simulate(under(world(), loads), "bsp")
    assert used.iterations == usual.iterations
    assert used.iteration_s > 1.5 * usual.iteration_s


def test_its_machines_keep_their_speeds_and_links() -> None:
    loads = loads_of(read_task_usage([row(0, 5, machine=str(at)) for at in range(6)]))
    before, after = world().machines, under(world(), loads).machines
    assert [group.link for group in after] == [group.link for group in before]
    assert [getattr(group.machine, "samples_per_second", 0) for group in after] == [
        getattr(group.machine, "samples_per_second", 1) for group in before
    ]
    assert all(isinstance(group.machine, TracedMachine) and group.machine.repeats for group in after)


def test_too_few_machines_or_gpus_are_refused() -> None:
    loads = loads_of(read_task_usage([row(0, 5, machine=str(at)) for at in range(4)]))
    with pytest.raises(TraceError, match="the trace has 1 machines, expected one for each of 4 workers of"):
        under(world(), {"0": loads["0"]})
    gpus = world(groups=alike(4, GpuMachine(launch_s=0.1, seconds_per_sample=0.1, memory_samples=64)))
    with pytest.raises(ScenarioError, match="machine of w0: found 'a GPU', expected a CPU machine"):
        under(gpus, loads)
