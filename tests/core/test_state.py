"""The records of a job: what a rollback keeps is written down, and all else begins as in a fresh job."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.engine import Engine
from controlplane.core.records import Checkpoint
from controlplane.core.state import SNAPSHOT_VERSION, Job, SnapshotVersionError, read_snapshot
from controlplane.core.states import Pieces, ProcessState, Worker
from controlplane.policies.registry import resolve
from controlplane.protocol.checkpoints import Restore
from controlplane.protocol.spec import parse_spec
from tests.core.story import document

OUTLIVE_A_ROLLBACK = {
    "guarded.before",
    "flags.count",
    "flags.open",
    "flags.shown_ms",
    "flags.unanswered",
    "starts.at_work",
    "starts.away",
    "starts.counts",
    "starts.is_rebuilding",
    "starts.looked_ms",
    "starts.rebuild_ms",
    "starts.restarts",
    "starts.revivals",
    "starts.short",
    "starts.starting",
    "pace.iteration_s",
    "piloted.samples",
    "piloted.counted",
    "piloted.batches",
    "piloted.present",
    "piloted.since",
    "piloted.chosen",
    "pace.speed",
    # Numbers that must never come twice.
    "generation.number",
    "placement.plans",
    "placement.probe_round",
    "placement.version",
    "refilling.count",
    # What holds for the next lives too.
    "attachment.begins",
    "attachment.ends",
    "attachment.ends_as",
    "attachment.fill_batch",
    "attachment.may_fill",
    "attachment.most_batch",
    "attachment.noise",
    "attachment.room",
    "attachment.past",
    "attachment.stalled",
    "attachment.stalled_at",
    "attachment.stalled_in",
    "attachment.version",
    "attachment.launcher_seen_ms",
    "attachment.waits_since_ms",
    "scripts.attempt",
    "scripts.due_ms",
    "scripts.failure",
    "scripts.is_stopping",
    "scripts.processes",
    "scripts.restarts",
    "scripts.short",
    "scripts.started_ms",
    "scripts.status",
    "checkpoints.kept",
    "end.reason",
    "placement.ask_again_ms",
    "placement.blocks",
    "placement.exchange_s",
    "placement.known_servers",
    "placement.request",
    "requests.actor",
    "requests.choices",
    "requests.left_out",
    "requests.respread",
    "samples.count",
    "samples.global_batch",
    # What people are shown of the whole job.
    "updates.late",
}

COUNTS = st.integers(0, 2**40)


def records() -> list[str]:
    """Names of the parts of a job that are records of their own, but for its policies and its spec."""
    fresh = Job(number=1)
    parts = [name for name in Job.__struct_fields__ if isinstance(getattr(fresh, name), msgspec.Struct)]
    return [name for name in parts if name != "synchronization"]


def leaves(job: Job) -> dict[str, Any]:
    """Every field of every record, by its path."""
    found = {}
    for name in records():
        record = getattr(job, name)
        found |= {f"{name}.{field}": getattr(record, field) for field in record.__struct_fields__}
    return found


def scrambled() -> Job:
    """A job in whose records no field is as in a fresh one; each has a value that is like no other."""
    job = Job(number=1, spec=parse_spec(document()))
    for name in records():
        record = getattr(job, name)
        for field in record.__struct_fields__:
            setattr(record, field, object())
    job.samples.global_batch = 640
    life: dict[str, Any] = {"instance": "w0", "agent": 1, "slot": 0, "emulate": None, "since_ms": 1, "seen_ms": 1}
    pieces = Pieces(iteration=3, drawn=2, counted=True)
    job.workers = {0: Worker(role="worker", index=0, state=ProcessState.READY, pieces=pieces, **life)}
    return job


@given(COUNTS, COUNTS, COUNTS, st.booleans(), st.none() | COUNTS)
def test_a_rollback_leaves_a_fresh_job_but_for_what_is_carried_over(
    iteration: int, position: int, dropped: int, is_start: bool, stop_at: int | None
) -> None:
    target = Checkpoint(iteration=iteration, position=position, dropped=dropped, is_start=is_start)
    job = scrambled()
    before = leaves(job)
    expected = leaves(Job(number=1)) | {path: before[path] for path in OUTLIVE_A_ROLLBACK}
    expected |= {
        "checkpoints.restore": Restore(iteration=iteration, is_start=is_start) if iteration else None,
        "checkpoints.saved_rounds": position // job.batch,
        "end.stop_at": stop_at,
        "generation.first_iteration": iteration,
        "generation.share_from": iteration,
        "round.completed": iteration - 1,
        "samples.cursor": position,
        "samples.dropped": dropped,
        "samples.origin_iteration": iteration,
        "samples.origin_position": position,
        "updates.apply_from": iteration,
    }
    job.roll_back(target, stop_at=stop_at)
    assert leaves(job) == expected
    assert job.workers[0].pieces == Pieces()


def test_what_outlives_a_rollback_exists() -> None:
    assert set(leaves(Job(number=1))) >= OUTLIVE_A_ROLLBACK


@pytest.mark.parametrize("version", [SNAPSHOT_VERSION - 1, SNAPSHOT_VERSION + 1])
def test_a_snapshot_of_another_release_is_refused(version: int) -> None:
    told = msgspec.msgpack.decode(Engine(job=1, resolve=resolve).snapshot())
    assert read_snapshot(msgspec.msgpack.encode(told)).job == Job(number=1)
    with pytest.raises(SnapshotVersionError, match=f"version {version}, this release reads {SNAPSHOT_VERSION}"):
        read_snapshot(msgspec.msgpack.encode({**told, "version": version}))


def test_a_snapshot_with_broken_text_is_refused() -> None:
    told = Engine(job=1, resolve=resolve).snapshot()
    broken = told.replace(b"version", b"\xff\xfersion")
    assert broken != told
    with pytest.raises(SnapshotVersionError, match="cannot be read"):
        read_snapshot(broken)
