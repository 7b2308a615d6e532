"""Checkpoints, and what a job does with them when a server is lost."""

import pytest

from controlplane.core.commands import (
    ChangePolicies,
    CloseFlag,
    IssueServerOrders,
    KeepCheckpoint,
    MoveJob,
    RaiseFlag,
    RollBack,
    SetRoster,
    SkipCheckpoint,
    StartProcess,
    StopProcess,
)
from controlplane.core.events import ChangeRequested, ServerMessageReceived
from controlplane.protocol.checkpoints import FoundCheckpoint, Restore, SavedBlock
from controlplane.protocol.messages import CheckpointSaved, Quiesced, RestoreFailed, ServerHello
from controlplane.protocol.spec import Choice
from tests.core.story import TENSOR_SIZES, of

ALL = dict.fromkeys(range(4), 1000.0)
EVERY_FIVE = {"every": 5}
MOMENTUM = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
"""With plain SGD a lost server is filled again by the workers."""


def say(told, index, build, **fields):
    instance = told.instance("s", index)
    told.numbers[instance] += 1
    return told.see(
        ServerMessageReceived(index=index, instance=instance, message=build(number=told.numbers[instance], **fields))
    )


def piece(block):
    return SavedBlock(start=block.start, stop=block.stop, steps=5, bytes=100, checksum=1)


def save(told, iteration):
    """Both servers write their blocks, and the first the manifest; what that led to."""
    for server in (0, 1):
        mine = [piece(block) for block in told.engine._job.placement.blocks if block.server == server]
        commands = say(told, server, CheckpointSaved, iteration=iteration, pieces=mine)
    (first, second) = [c.orders for c in of(IssueServerOrders, commands)][:2]
    assert (first.whole.iteration, second.whole) == (iteration, None)
    return say(told, 0, CheckpointSaved, iteration=iteration, is_whole=True)


def with_checkpoint(story, **changes):
    told = story(**({"checkpoint": EVERY_FIVE, "optimizer": MOMENTUM} | changes)).running()
    told.iterate(7, speeds=ALL)
    save(told, 5)
    return told


def rebuilt(told):
    """Everyone's new life says hello, once the pause of the dead server is over; what the last hello led to."""
    told.tick(after_ms=500)
    for rank in range(4):
        told.hello(rank)
    told.server_hello(0)
    return told.server_hello(1)


def test_it_counts_when_every_block_and_the_manifest_are_written(story):
    told = story(checkpoint=EVERY_FIVE).running()
    told.iterate(7, speeds=ALL)
    (kept,) = of(KeepCheckpoint, save(told, 5))
    assert (kept.iteration, kept.position, kept.bytes) == (5, 5 * 256, 200)


def test_lost_server_sends_everyone_back_to_the_checkpoint(story):
    told = with_checkpoint(story)
    commands = told.kill_server(1)
    (back,) = of(RollBack, commands)
    assert (back.to_iteration, back.completed) == (5, 6)
    assert back.reason.startswith("s1 was ended by signal 9; all go back to the checkpoint of iteration 5")
    assert back.reason.endswith("iterations 5 to 6 are repeated")
    assert of(MoveJob, commands)[0].state == "paused"
    assert len(of(StopProcess, commands)) == 6
    assert {c.instance for c in of(StartProcess, commands)} == {"w0.0.2", "w1.0.2", "w2.0.2", "w3.0.2", "s0.0.2"}


def test_job_continues_from_the_checkpoint_with_the_same_samples(story):
    told = with_checkpoint(story)
    told.kill_server(1)
    commands = rebuilt(told)
    (roster,) = of(SetRoster, commands)
    assert (roster.first_iteration, roster.ranks) == (5, [0, 1, 2, 3])
    orders = of(IssueServerOrders, commands)[-1].orders
    assert orders.restore == Restore(iteration=5)
    worker = told.orders[0]
    assert (worker.share_from, worker.origin_iteration, worker.origin_position) == (5, 5, 5 * 256)
    assert [m.state for m in of(MoveJob, commands)] == ["running"]
    told.iterate(2, speeds=ALL, start=5)
    assert told.engine._job.round.completed == 6


def test_job_without_lockstep_that_begins_anew_lets_its_workers_go(story):
    told = story(elastic={"from_scratch": True}, synchronization={"barrier": {"name": "asp"}}).running()
    for rank in (0, 1, 2, 3):
        told.report(rank, 0)
    told.kill_server(1)
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank)
    assert of(RollBack, commands)[0].to_iteration == 0, "nobody has a whole copy of what s1 held"
    rebuilt(told)
    assert {told.orders[rank].stop_at for rank in range(4)} == {None}
    assert min(told.orders[rank].watermark for rank in range(4)) >= 0


def test_checkpoint_that_cannot_be_read_is_left_out_for_the_one_before(story):
    told = with_checkpoint(story)
    told.iterate(5, speeds=ALL, start=7)
    save(told, 10)
    told.kill_server(1)
    rebuilt(told)
    commands = say(told, 0, RestoreFailed, iteration=10, reason="block-0.bin cannot be read")
    assert of(SkipCheckpoint, commands)[0].reason == (
        "s0 cannot use the checkpoint of iteration 10: block-0.bin cannot be read"
    )
    assert of(RollBack, commands)[0].to_iteration == 5


def test_full_disk_pauses_the_job_until_someone_resumes_it(story):
    told = story(checkpoint=EVERY_FIVE).running()
    told.iterate(7, speeds=ALL)
    commands = say(told, 0, CheckpointSaved, iteration=5, failure="it cannot be written: No space left on device")
    moved = of(MoveJob, commands)[0]
    assert (moved.state, moved.reason) == ("paused", "s0: it cannot be written: No space left on device")


def at_its_end(story, iterations=10, **changes):
    """Every worker has reached the end, and the servers have said nothing of its checkpoint; the last commands."""
    told = with_checkpoint(story, stop={"iterations": iterations}, **changes)
    told.iterate(iterations - 7, speeds=ALL, start=7)
    for rank in range(4):
        commands = told.finish(rank, iterations, model_saved=rank == 0)
    return told, of(MoveJob, commands)


def test_job_that_ends_where_a_checkpoint_is_due_waits_until_it_is_whole(story):
    told, (moved,) = at_its_end(story)
    assert (moved.state, moved.awaited) == ("finishing", "the checkpoint of iteration 10")
    commands = save(told, 10)
    assert of(KeepCheckpoint, commands)[0].iteration == 10
    assert of(MoveJob, commands)[0].state == "succeeded"
    assert told.engine._job.checkpoints.kept[-1].iteration == 10


def test_job_that_ends_between_two_checkpoints_waits_for_none(story):
    _, (moved,) = at_its_end(story, iterations=9)
    assert (moved.state, moved.reason) == ("succeeded", "9 iterations were requested; 9 iterations were done")


@pytest.mark.parametrize(
    "last",
    [
        lambda told: say(told, 0, CheckpointSaved, iteration=10, failure="No space left on device"),
        lambda told: told.kill_server(1),
        lambda told: told.tick(after_ms=60_000),
    ],
    ids=["full disk", "lost server", "time"],
)
def test_job_at_its_end_does_not_wait_for_a_checkpoint_that_will_not_come(story, last):
    told, _ = at_its_end(story)
    assert told.engine.deadline_ms <= told.now_ms + 60_000
    moved = of(MoveJob, last(told))[-1]
    assert moved.state == "succeeded"
    assert moved.reason == ("10 iterations were requested; 10 iterations were done; its final checkpoint is incomplete")


def test_full_disk_at_the_end_is_reported_and_holds_no_one(story):
    told = with_checkpoint(story, stop={"iterations": 10})
    told.iterate(3, speeds=ALL, start=7)
    told.finish(0, 10, model_saved=True)
    commands = say(told, 0, CheckpointSaved, iteration=10, failure="No space left on device")
    (said,) = of(SkipCheckpoint, commands)
    assert (said.iteration, said.reason) == (10, "s0: No space left on device")
    ends = [of(MoveJob, told.finish(rank, 10)) for rank in (1, 2, 3)]
    assert [[move.state for move in moves] for moves in ends] == [[], [], ["succeeded"]]


def stand(told, rank, generation=1):
    done = told.engine._job.workers[rank].done
    held = Quiesced(
        number=told.next_number(rank), generation=generation, iteration=done + 1, sequence=told.orders[rank].sequence
    )
    return told.say(rank, held)


def test_asynchronous_job_is_held_for_a_consistent_cut(story):
    told = story(checkpoint=EVERY_FIVE, synchronization={"barrier": {"name": "asp"}}).running()
    for rank in (0, 1, 2, 3) * 5:
        if not told.orders[rank].hold:
            told.report(rank, told.engine._job.workers[rank].done + 1)
    assert {told.orders[rank].hold for rank in range(4)} == {True}
    for rank in range(3):
        assert not of(IssueServerOrders, stand(told, rank))
    cut = of(IssueServerOrders, stand(told, 3))[0].orders.save_at
    assert cut == max(told.engine._job.workers[rank].done for rank in range(4)) + 1
    assert of(KeepCheckpoint, save(told, cut))[0].iteration == cut
    assert {told.orders[rank].hold for rank in range(4)} == {False}


def hello_with(told, index, found, skipped=()):
    told.numbers[told.instance("s", index)] = 1
    hello = ServerHello(
        number=1, host="127.0.0.1", port=7000, tensor_sizes=TENSOR_SIZES, found=list(found), skipped=list(skipped)
    )
    return told.see(ServerMessageReceived(index=index, instance=told.instance("s", index), message=hello))


def test_job_starts_from_the_newest_checkpoint_that_every_server_can_use(story):
    told = story(start_from={"job": 3}).starting()
    for rank in range(4):
        told.hello(rank)
    found = [FoundCheckpoint(iteration=each, position=each * 256) for each in (60, 40)]
    hello_with(told, 0, found)
    commands = hello_with(told, 1, found[1:], ["000000060 was not finished"])
    assert of(SkipCheckpoint, commands)[0].reason == "000000060 was not finished"
    assert of(SetRoster, commands)[0].first_iteration == 40
    assert of(IssueServerOrders, commands)[0].orders.restore == Restore(iteration=40, is_start=True)
    assert (told.orders[0].origin_iteration, told.orders[0].origin_position) == (40, 40 * 256)


def test_job_that_finds_no_checkpoint_to_start_from_reports_why(story):
    told = story(start_from={"job": 3}).starting()
    for rank in range(4):
        told.hello(rank)
    hello_with(told, 0, [], ["job-3 holds no checkpoint"])
    moved = of(MoveJob, hello_with(told, 1, [], ["job-3 holds no checkpoint"]))[-1]
    why = "no checkpoint to start from: job-3 holds no checkpoint"
    assert (moved.state, moved.reason) == ("failed", why)


def test_server_that_dies_while_all_begin_anew_is_waited_for(story):
    told = with_checkpoint(story)
    told.kill_server(1)
    told.tick(after_ms=500)
    told.kill_server(1)
    assert told.given(MoveJob)[-1].state == "paused"
    told.tick(after_ms=1_000)
    commands = rebuilt(told)
    assert told.given(RollBack)[-1].to_iteration == 5
    assert [m.state for m in of(MoveJob, commands)] == ["running"]


def test_loss_that_is_no_number_ends_the_job_and_names_the_last_good_checkpoint(story):
    told = with_checkpoint(story)
    moved = of(MoveJob, told.report(2, 7, samples=0, spoilt="nan"))[0]
    assert moved.state == "failed"
    good = "the last good checkpoint is of iteration 5; try a smaller learning rate"
    assert moved.reason == f"the loss of w2 in iteration 7 is nan; {good}"


@pytest.mark.parametrize("on_nan", ["fail", "skip"])
def test_parameters_that_are_no_numbers_end_the_job_whatever_may_be_left_out(story, on_nan):
    told = with_checkpoint(story, on_nan=on_nan)
    told.iterate(3, speeds=ALL, start=7)
    why = "the parameters that iteration 10 begins with are not finite numbers"
    moved = of(MoveJob, say(told, 0, CheckpointSaved, iteration=10, failure=why, is_spoilt=True))[0]
    assert moved.state == "failed"
    assert moved.reason == f"s0: {why}; the last good checkpoint is of iteration 5; try a smaller learning rate"


def test_loss_that_is_no_number_can_be_left_out(story):
    told = story(on_nan="skip").running()
    (raised,) = of(RaiseFlag, told.report(2, 0, samples=0, spoilt="inf"))
    assert raised.reason == "the loss of w2 in iteration 0 is inf: its update is left out"
    for rank in (0, 1, 3):
        told.report(rank, 0)
    assert told.engine._job.round.completed == 0
    assert of(CloseFlag, told.report(2, 1))[0].reason == "the loss of w2 is a number again"


@pytest.mark.parametrize("data", ["rotation", "exchange"])
def test_workers_go_back_in_their_splits_too(story, data):
    told = story(checkpoint=EVERY_FIVE, optimizer=MOMENTUM, synchronization={"data": {"name": data}}).running()
    told.iterate(5, speeds=ALL)
    before = {rank: (told.orders[rank].pieces_of, told.orders[rank].pieces) for rank in range(4)}
    told.iterate(2, speeds=ALL, start=5)
    save(told, 5)
    told.kill_server(1)
    rebuilt(told)
    assert {rank: (told.orders[rank].pieces_of, told.orders[rank].pieces) for rank in range(4)} == before
    assert before[0][0] == 5


def test_a_change_that_waited_for_the_workers_takes_effect_after_a_rollback(story):
    told = story(elastic={"from_scratch": True}, synchronization={"barrier": {"name": "asp"}}).running()
    for rank in range(4):
        told.report(rank, 0)
    told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="bsp")}))
    told.kill_server(1)
    told.tick(after_ms=500)
    told.server_hello(1)
    for rank in range(4):
        commands = told.copies(rank)
    assert of(RollBack, commands)[0].to_iteration == 0
    commands = rebuilt(told)
    # They begin anew, so each is at a boundary already.
    (change,) = of(ChangePolicies, commands)
    assert change.choices == {"barrier": Choice(name="bsp")}
    assert {told.orders[rank].hold for rank in range(4)} == {False}


def test_an_iteration_after_a_time_without_lockstep_is_not_as_long_as_that_time(story):
    told = story(workers=1, servers=1, synchronization={"barrier": "bsp"}).running()
    for iteration in range(10):
        told.report(0, iteration)
    before = told.engine._job.pace.iteration_s
    told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="asp")}))
    for _ in range(10):
        told.now_ms += 1_000
        told.report(0, told.engine._job.workers[0].done + 1)
    told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="bsp")}))
    stand(told, 0, generation=told.orders[0].generation)
    for _ in range(3):
        told.report(0, told.engine._job.workers[0].done + 1)
    assert told.engine._job.pace.iteration_s == pytest.approx(before, rel=0.5)
