"""Iterations of which only a part is processed, and samples that each worker has for itself."""

import pytest

from controlplane.core.commands import IssueOrders, MoveSplits
from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.spec import Stop
from controlplane.simulator.control import Recording
from controlplane.simulator.numerics.settings import Numerics
from controlplane.simulator.running import compare, simulate
from controlplane.simulator.scenario import Scenario
from tests.simulator.worlds import world

LEARNS = Numerics(problem="logistic-regression")


def reports(scenario: Scenario, policy: str) -> tuple[Recording, list[tuple[int, IterationReport]]]:
    recording = Recording(keep=True)
    assert simulate(scenario, policy, recording=recording).state == "succeeded"
    said = [entry.event for entry in recording.entries if isinstance(entry.event, WorkerMessageReceived)]
    return recording, [(each.rank, each.message) for each in said if isinstance(each.message, IterationReport)]


def test_with_a_time_budget_everyone_stops_at_the_same_time_and_processes_what_fits() -> None:
    uniform, deadline = compare(world(), ["bsp", "deadline"])
    assert deadline.iteration_s < 0.4 * uniform.iteration_s
    assert deadline.samples == pytest.approx(uniform.samples, rel=0.02)
    assert [round(share / deadline.shares[3]) for share in deadline.shares] == [4, 4, 2, 1]


def test_a_budget_that_is_used_up_ends_the_iteration_with_the_sample_that_is_under_way() -> None:
    recording, said = reports(world(), "deadline")
    budgets = [command.orders.budget_s for command in recording.commands if isinstance(command, IssueOrders)]
    longest = max(budget for budget in budgets if budget is not None)
    slowest_sample_s = 1 / 250
    assert max(report.compute_s for _, report in said[20:]) <= longest + slowest_sample_s + 1e-9


@pytest.mark.parametrize(
    "policy", ["rotation", "exchange", "lb-bsp-cpu+rotation", "aggressive+exchange", "asp+rotation"]
)
def test_splits_of_their_own_are_gone_through_from_where_each_stopped(policy: str) -> None:
    recording, said = reports(world(numerics=LEARNS, stop=Stop(iterations=10)), policy)
    pieces = {
        (command.rank, command.orders.pieces_of): command.orders.pieces
        for command in recording.commands
        if isinstance(command, IssueOrders) and command.orders.pieces_of is not None
    }
    seen: set[int] = set()
    for rank, report in said:
        mine = [at for piece in pieces[rank, report.iteration] for at in range(piece.start, piece.stop)]
        assert report.position == mine[0]
        taken = set(mine[: report.samples])
        assert not taken & seen, "within the first pass nobody takes what somebody else had"
        seen |= taken
    assert len(seen) == sum(report.samples for _, report in said) <= LEARNS.samples


def test_splits_change_hands_where_process_counts_call_for_it() -> None:
    recording, _ = reports(world(stop=Stop(iterations=120)), "lb-bsp-cpu+exchange")
    moves = [command for command in recording.commands if isinstance(command, MoveSplits)]
    assert moves


def test_with_splits_of_their_own_the_model_learns_as_well() -> None:
    shared, rotated = compare(world(numerics=LEARNS), ["bsp", "rotation"])
    assert shared.loss is not None
    assert rotated.loss == pytest.approx(shared.loss, rel=0.1)
