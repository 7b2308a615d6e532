"""The end of a job: everything is told to stop, and the slots go back when nothing runs on them."""

from controlplane.core import flags
from controlplane.core.commands import MoveJob, ReleaseSlots
from controlplane.core.handling import Handling
from controlplane.core.states import JobState, ProcessState, in_words

SLOTS_RETURN_MS = 15_000
"""How long the end of a job waits for its processes before its slots are given back anyway."""

LAST_CHECKPOINT_MS = 60_000
"""How long a job whose workers have reached the end waits for its servers to keep that on disk."""


def end(handling: Handling, state: JobState, reason: str) -> None:
    """The job is over: stop what still runs; slots go back when it has ended."""
    handling.move_job(state, reason)
    job = handling.job
    job.lives.revivals.clear()
    job.pauses.clear()
    for process in job.live_processes:
        handling.stop_process(process, f"the job {in_words(state)}")
    flags.close_all(handling, f"the job {in_words(state)}")
    return_slots(handling)


def finish_if_all_have(handling: Handling) -> None:
    """The job has succeeded once every live worker has reached its end, and a checkpoint that is due there is whole."""
    job = handling.job
    if job.state is not JobState.FINISHING or job.lives.at_work:
        return
    is_due = _last_checkpoint_is_due(handling)
    if is_due and _last_checkpoint_has_time(handling):
        return
    count = job.round.completed + 1
    in_common = f"{count} iterations were done"
    done = in_common if handling.chosen.gate is None else f"every worker got as far as iteration {count}"
    saved = "" if job.end.model_saved else "; the final parameters were not saved: who was to save them ended before"
    kept = "; the checkpoint of its end is not whole" if is_due else ""
    end(handling, JobState.SUCCEEDED, f"{job.end.reason}; {done}{saved}{kept}")


def finish_without_checkpoint(handling: Handling) -> None:
    """The servers will not keep the end any more: nobody waits for it."""
    handling.job.end.by_ms = handling.now_ms
    finish_if_all_have(handling)


def _last_checkpoint_is_due(handling: Handling) -> bool:
    """Whether the servers are still to keep what the last iteration led to; workers who hold it do so as they end."""
    job, asked = handling.job, handling.spec.checkpoint
    if asked is None or handling.spec.workers_hold or handling.chosen.gate is not None:
        return False
    last = job.round.completed + 1
    return last > 0 and last % asked.every == 0 and all(each.iteration < last for each in job.checkpoints.kept)


def _last_checkpoint_has_time(handling: Handling) -> bool:
    """Whether it is still waited for; the first look begins the wait."""
    job = handling.job
    if job.end.by_ms is None:
        job.end.by_ms = handling.now_ms + LAST_CHECKPOINT_MS
        handling.has_new_deadline = True
        awaited = f"the checkpoint of iteration {job.round.completed + 1}"
        handling.give(MoveJob, "every worker has reached the end", state=job.state, awaited=awaited)
    return handling.now_ms < job.end.by_ms


def return_slots(handling: Handling, *, late: bool = False) -> None:
    """Give the slots back once nothing runs on them, or it is ``late``."""
    job = handling.job
    running = job.live_processes
    if not job.holds_slots or (running and not late):
        return
    for process in running:
        handling.move_process(process, ProcessState.STOPPED, f"no word of its end within {SLOTS_RETURN_MS / 1000:g} s")
    job.holds_slots = False
    handling.give(ReleaseSlots, "its processes had their time" if late else "every process of the job has ended")
