"""`bench peers`: what logs tell, who is ahead, which settings are tried; and two of its runs, short ones."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.peers import contenders
from benchmarks.peers.command import Effort, attempt, best, main
from benchmarks.peers.contenders import BARRIERS, NATIVE, OTHERS, Contender, ours, shares_by_hand
from benchmarks.peers.figures import Figures, NotReached, figures_of, read
from benchmarks.peers.machine import Machine, started
from benchmarks.peers.paceline_runs import specification
from benchmarks.peers.scenes import EVERY_S, SCENES
from benchmarks.peers.scripts.by_hand import Shares
from benchmarks.peers.table import line_of, table
from benchmarks.peers.task import BATCH, WORLD
from benchmarks.peers.verdict import Row, failures
from controlplane.jobs.validation import validated_spec

STEADY, CHANGING = SCENES["steady"], SCENES["changing"]


def logged(folder: Path, *, machines: dict[int, list[tuple[float, float, float, int]]], scores: str) -> None:
    for machine, passes in machines.items():
        lines = "".join(" ".join(map(str, row)) + "\n" for row in passes)
        (folder / f"machine-{machine}.log").write_text(lines)
    (folder / "scores.log").write_text(scores)


def test_figures_are_those_of_the_time_up_to_the_target(tmp_path: Path) -> None:
    fast = [(10.0 + k, 10.25 + k, 10.25 + k, 64) for k in range(8)]
    slow = [(10.0 + k, 11.0 + k, 11.0 + k, 64) for k in range(8)]
    logged(tmp_path, machines={0: fast, 1: slow}, scores="12.0 0.5\n14.0 0.9\n16.0 1.0\n")
    found = figures_of(read(tmp_path), target=0.7, launched=7.0)
    assert found.start_s == 3.0
    assert found.to_target_s == pytest.approx(3.0)  # halfway between the first two scores
    assert found.iterations == pytest.approx(3 * 128 / 256)
    assert found.iteration_s == pytest.approx(2.0)
    assert found.waiting == pytest.approx(1 - 1.25 / 2)
    assert found.late == 0.0


def test_the_second_half_shows_what_adapting_gained(tmp_path: Path) -> None:
    passes = [(0.0, 2.0, 2.0, 256), (2.0, 4.0, 4.0, 256), *((4.0 + k, 5.0 + k, 5.0 + k, 256) for k in range(4))]
    logged(tmp_path, machines={0: passes}, scores="8.0 0.9\n")
    found = figures_of(read(tmp_path), target=0.9, launched=0.0)
    assert (found.iteration_s, found.late_iteration_s) == (pytest.approx(8 / 6), pytest.approx(1.0))


def test_a_pass_that_ends_late_is_noted_as_this_computers(tmp_path: Path) -> None:
    logged(tmp_path, machines={0: [(0.0, 1.0, 1.1, 256), (1.1, 2.1, 2.1, 256)]}, scores="2.0 1.0\n")
    assert figures_of(read(tmp_path), target=1.0, launched=0.0).late == pytest.approx(0.1 / 2.1)


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    logged(tmp_path, machines={0: [(0.0, 1.0, 1.0, 64)]}, scores="1.0 0.5\n2.0 0.")
    (tmp_path / "machine-1.log").write_text("0.0 1.0 1.0 64\n1.0 2.")
    logs = read(tmp_path)
    assert logs.scores == [(1.0, 0.5)]
    assert [len(rows) for rows in logs.passes.values()] == [1, 1]


@pytest.mark.parametrize(
    ("scores", "told"), [("5.0 0.8\n6.0 0.75\n", "accuracy 0.800 at best"), ("", "accuracy 0.000 at best")]
)
def test_a_run_that_does_not_get_there_reports_how_far_it_came(tmp_path: Path, scores: str, told: str) -> None:
    logged(tmp_path, machines={0: [(0.0, 1.0, 1.0, 64)]}, scores=scores)
    with pytest.raises(NotReached, match=told):
        figures_of(read(tmp_path), target=0.9, launched=0.0)


def test_a_run_without_a_pass_reports_that_no_one_trained(tmp_path: Path) -> None:
    with pytest.raises(NotReached, match="no machine trained"):
        figures_of(read(tmp_path), target=0.9, launched=0.0)


def figures(to_target_s: float, *, late: float = 0.0) -> Figures:
    return Figures(
        start_s=9.0,
        to_target_s=to_target_s,
        iteration_s=0.1,
        late_iteration_s=0.09,
        iterations=240.0,
        waiting=0.2,
        late=late,
        memory_mb=2000.0,
    )


HAND = Row(scene="steady", name="DDP, batches by hand", figures=figures(100.0), by_hand=True)
PACED = Row(scene="steady", name="Paceline attached", figures=figures(102.0), judged=True)


def test_batches_by_hand_may_be_a_little_ahead_on_steady_machines_only() -> None:
    assert failures([HAND, PACED]) == []
    assert failures([HAND, replace(PACED, figures=figures(104.0))]) == [
        "steady: Paceline attached took 1.040 of DDP, batches by hand's time, expected at most 1.03"
    ]
    changing = [replace(row, scene="changing") for row in (HAND, PACED)]
    assert failures(changing) == [
        "changing: Paceline attached took 1.020 of DDP, batches by hand's time, expected at most 1"
    ]


def test_no_other_may_be_ahead_and_who_is_absent_is_not() -> None:
    other = Row(scene="steady", name="Ray Train", figures=figures(90.0))
    assert failures([other, PACED]) == ["steady: Paceline attached took 1.133 of Ray Train's time, expected at most 1"]
    assert failures([replace(other, figures=None, absent="ray is not installed"), PACED]) == []


def test_a_barrier_that_takes_other_steps_keeps_no_bar_for_paceline() -> None:
    barrier = Row(scene="steady", name="Paceline native, pbsp", figures=figures(50.0))
    assert len(failures([HAND, replace(PACED, figures=figures(150.0)), barrier])) == 1


def test_a_run_that_measures_this_computer_is_invalid() -> None:
    assert failures([replace(PACED, figures=figures(90.0, late=0.08))]) == [
        "steady: Paceline attached is invalid, 8% of its passes is not the emulated machines' time"
    ]


def test_the_row_of_an_invalid_run_reports_it() -> None:
    said = "; invalid, 8% of its passes is not the emulated machines' time"
    assert line_of(replace(PACED, setting="lb-bsp-cpu", figures=figures(90.0, late=0.08))).endswith(f"lb-bsp-cpu{said}")
    assert line_of(replace(PACED, setting="lb-bsp-cpu")).endswith("lb-bsp-cpu")


def test_the_table_has_the_fastest_first_and_reports_who_is_absent() -> None:
    absent = Row(scene="steady", name="torchft LocalSGD", absent="torchft is not installed: make adapters")
    slow = replace(HAND, name="DDP, plain", figures=figures(300.0), setting="64 each", tried=2)
    lines = table([slow, absent, PACED], target=0.93).splitlines()
    assert [line[:26].strip() for line in lines[2:5]] == ["Paceline attached", "DDP, plain", "torchft LocalSGD"]
    assert lines[3].endswith("64 each (best of 2)")
    assert lines[4].endswith("torchft is not installed: make adapters")


def effort() -> Effort:
    options: Any = SimpleNamespace(json=True, target=0.9, limit=180.0, search=True)
    return Effort(options=options, plane_s=0.0, pause=time.sleep)


def test_without_the_peers_environment_a_peer_is_absent_and_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(contenders, "ADAPTERS", tmp_path)
    ray = next(each for each in OTHERS if each.name == "Ray Train")
    row = best(ray, STEADY, effort(), known="")
    assert (row.figures, row.absent) == (None, "ray.train.torch is not installed: make adapters")


def test_a_run_that_fails_is_made_once_more_and_its_row_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Figures | Exception] = [NotReached("ended with exit code 1"), figures(60.0)]

    def run(*_: Any, **__: Any) -> Figures:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr("benchmarks.peers.command.run", run)
    row = Row(scene="steady", name="Flower FedAvg", setting="24 steps")
    found = attempt(OTHERS[-1], row, STEADY, effort(), limit_s=180.0)
    assert (found.figures, found.remark) == (figures(60.0), " (first run failed)")
    ends[:] = [NotReached("no machine trained"), NotReached("accuracy 0.500 at best")]
    failed = attempt(OTHERS[-1], row, STEADY, effort(), limit_s=180.0)
    assert failed.absent == "accuracy 0.500 at best"


def test_the_best_setting_is_taken_and_a_slower_one_is_ended_once_it_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: dict[str, float] = {}

    def run(contender: Contender, setting: str, scene: Any, effort: Effort, *, limit_s: float) -> Figures:
        limits[setting] = limit_s
        if (took := {"a": 60.0, "b": 70.0, "c": 50.0}[setting]) > limit_s:
            raise NotReached("accuracy 0.8 at best")
        return figures(took)

    monkeypatch.setattr("benchmarks.peers.command.run", run)
    row = best(replace(OTHERS[0], settings=("a", "b", "c")), STEADY, effort(), known="")
    assert (row.setting, row.figures, row.tried) == ("c", figures(50.0), 3)
    assert limits == {"a": 180.0, "b": 60.0, "c": 60.0}


def chosen(name: str) -> Contender:
    return next(each for each in OTHERS if each.name == name)


def test_settings_are_searched_once_and_shares_by_hand_wherever_speeds_change() -> None:
    torchft, hand = chosen("torchft LocalSGD"), chosen("DDP, batches by hand")
    assert torchft.choices(STEADY, "", search=False) == ("4 steps",)
    assert torchft.choices(STEADY, "", search=True) == ("4 steps", "16 steps")
    assert torchft.choices(CHANGING, "16 steps", search=True) == ("16 steps",)
    assert hand.choices(STEADY, "", search=True) == ("first speeds",)
    assert hand.choices(CHANGING, "first speeds", search=True) == ("first speeds", "mean speeds")


def test_shares_by_hand_are_in_proportion_to_speeds() -> None:
    assert shares_by_hand(STEADY, "first speeds") == [93, 93, 47, 23]
    assert shares_by_hand(CHANGING, "mean speeds") == [58, 93, 47, 58]


def test_shares_by_hand_take_each_sample_once_in_a_pass() -> None:
    ranks = [Shares(1437, [93, 93, 47, 23], rank) for rank in range(WORLD)]
    for _ in range(2):
        batches = [list(rank) for rank in ranks]
        assert {len(each) for each in batches} == {6}
        assert sorted(index for each in batches for batch in each for index in batch) == list(range(1437))


def test_both_scenes_have_the_same_speed_in_all() -> None:
    assert {sum(speeds) for scene in SCENES.values() for speeds in scene.phases} == {2750.0}
    points = CHANGING.emulation(0).trace
    assert points is not None
    assert [(point.time, point.speed) for point in points] == [(0.0, 1000.0), (EVERY_S, 250.0)]


@pytest.mark.parametrize("choices", [*NATIVE.values(), *BARRIERS.values()])
def test_every_native_job_is_accepted(choices: dict[str, Any]) -> None:
    spec = validated_spec(specification(choices))
    assert (spec.workers, spec.batch_size) == (WORLD, BATCH)


def test_each_barrier_has_a_row_in_both_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(contender: Contender, setting: str, scene: Any, effort: Effort, *, limit_s: float) -> Figures:
        return figures(60.0)

    monkeypatch.setattr("benchmarks.peers.command.run", run)
    runs: Any = SimpleNamespace(attached=None, native=lambda *_: None)
    rows = [best(each, scene, effort(), known="") for scene in SCENES.values() for each in ours(runs)[2:]]
    assert [(row.scene, row.setting) for row in rows] == [(scene, setting) for scene in SCENES for setting in BARRIERS]


def test_paceline_is_judged_where_it_takes_the_steps_of_others() -> None:
    runs: Any = SimpleNamespace(attached=None, native=lambda *_: None)
    assert [(each.name, each.judged) for each in ours(runs)] == [
        ("Paceline attached", True),
        ("Paceline native, LB-BSP", True),
        ("Paceline native, pbsp", False),
        ("Paceline native, aggressive", False),
        ("Paceline native, pssp", False),
    ]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with closing(Machine(3, STEADY, tmp_path)) as made:
        yield made


def passed(machine: Machine, module: nn.Module, samples: int) -> None:
    machine.begin(module, None)
    machine.end(module, None, torch.zeros(samples, 10))


def test_a_training_pass_takes_as_long_as_on_the_machine_and_nothing_else_does(
    machine: Machine, tmp_path: Path
) -> None:
    layer = nn.Linear(2, 10)
    passed(machine, layer, 5)
    with torch.no_grad():
        passed(machine, layer, 1_000_000)  # an evaluation
    passed(machine, nn.CrossEntropyLoss(), 1_000_000)  # a loss
    machine.begin(layer, None)
    passed(machine, layer, 1_000_000)  # a part of the module
    machine.end(layer, None, torch.zeros(5, 10))
    passes = read(tmp_path).passes[3]
    assert [row.samples for row in passes] == [5, 5]
    assert all(row.due - row.begin == pytest.approx(5 / 250, abs=1e-4) for row in passes)
    assert all(row.end >= row.due for row in passes)


def test_an_evaluation_by_another_thread_hides_no_training_pass(machine: Machine, tmp_path: Path) -> None:
    layer = nn.Linear(2, 10)

    def evaluation_begins() -> None:
        with torch.no_grad():
            machine.begin(layer, None)

    thread = threading.Thread(target=evaluation_begins)
    thread.start()
    thread.join()
    passed(machine, layer, 5)
    assert [row.samples for row in read(tmp_path).passes[3]] == [5]


def test_all_machines_have_the_clock_of_the_first(tmp_path: Path) -> None:
    now = time.monotonic()
    assert [round(started(tmp_path, now + k), 3) for k in range(3)] == [round(now, 3)] * 3


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_peers_are_run_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--scene", "steady", "--only", "plain", "--only", "by hand", "--target", "0.2", "--json"])
    document = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row["figures"] for row in document["rows"]}
    assert rows.keys() == {"DDP, plain", "DDP, batches by hand"}
    for each in rows.values():
        assert each["to_target_s"] > 0
        assert each["memory_mb"] > 100
        assert 0 < each["iterations"] < 240
    assert rows["DDP, batches by hand"]["iteration_s"] < rows["DDP, plain"]["iteration_s"]
    assert rows["DDP, plain"]["iteration_s"] >= 0.25
