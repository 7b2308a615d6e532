"""What a person sees of the runs, where there is no terminal to draw on."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from controlplane.api.demo.display import Display, closing_table, numbers, verdict_line
from controlplane.api.demo.record import Record
from controlplane.api.demo.verdict import Bar, Summary
from paceline.client.columns import Series
from paceline.client.types import Job, Waiting


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=110, force_terminal=False)


def said(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_run_reports_where_it_ended_and_reports_it_once(console: Console) -> None:
    with Display(console) as display:
        display.begin("BSP", 60)
        display.show(10, "loss 1.000")
        display.show(60, "loss 0.500", last=True)
        display.show(60, "loss 0.500", last=True)
    assert said(console) == ["BSP      60/60  loss 0.500"]


def test_a_run_that_waits_reports_for_what() -> None:
    waiting = Waiting(sentence="2 of 4 worker slots are free", status="waits")
    job = Job(id=1, name="a", state="submitted", is_over=False, waiting=waiting, awaited="4 worker slots")
    assert numbers(job, Record()) == "2 of 4 worker slots are free"
    assert numbers(replace(job, waiting=None), Record()) == "4 worker slots"


def test_a_running_job_is_one_line_of_recent_figures() -> None:
    record = Record()
    values = {"iteration_s": 0.25, "waiting_s": 0.1, "coordination_s": 0.025, "loss": 0.5, "samples": 64.0}
    for metric, value in values.items():
        record.absorb([Series(metric=metric, worker=0, iterations=[0], values=[value])])
    record.absorb([Series(metric="accuracy", worker=None, iterations=[0], values=[0.125])])
    job = Job(id=1, name="a", state="running", is_over=False)
    assert numbers(job, record) == "loss 0.500  accuracy 0.125  250 ms/iteration  50% lost"


def test_the_closing_table_sets_both_runs_side_by_side(console: Console) -> None:
    runs = [
        Summary(label=label, seconds_to_target=seconds, mean_iteration_s=mean, lost_share=share, final_accuracy=0.95)
        for label, seconds, mean, share in (("BSP", 26.4, 0.25, 0.5), ("LB-BSP", None, 0.1, 0.05))
    ]
    console.print(closing_table(runs, 0.92, 2.5))
    words = [" ".join(line.replace("│", " ").split()) for line in said(console)]
    assert words[0] == "With LB-BSP, iterations are 2.50 times as fast as with BSP"
    assert "BSP 26.4 s 250 ms 50% 0.9500 1.00x" in words
    assert "LB-BSP not reached 100 ms 5% 0.9500 2.50x" in words


@pytest.mark.parametrize(("holds", "word"), [(True, "holds"), (False, "FAILS")])
def test_a_verdict_is_a_word_and_not_a_colour_alone(console: Console, holds: bool, word: str) -> None:
    console.print(verdict_line(Bar(name="ratio", expected="at most 0.45", found="0.4", holds=holds)))
    assert said(console) == [f"{word}  ratio: 0.4, expected at most 0.45"]
