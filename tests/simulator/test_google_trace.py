import pytest

from controlplane.simulator.errors import TraceError
from controlplane.simulator.google_trace import loads_of, read_task_usage

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
        (["1,2,3"], "row 1: 3 fields, expected 20"),
        ([], "no rows, expected lines of 20 fields"),
    ],
)
def test_a_broken_row_is_refused_with_its_number_and_the_cure(lines: list[str], sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence):
        read_task_usage(lines)
