"""The end of a job: everything is told to stop, and the slots go back when nothing runs on them."""

from controlplane.core import flags
from controlplane.core.commands import ReleaseSlots
from controlplane.core.handling import Handling
from controlplane.core.states import JobState, ProcessState, in_words

SLOTS_RETURN_MS = 15_000
"""How long the end of a job waits for its processes before its slots are given back anyway."""


def end(handling: Handling, state: JobState, reason: str) -> None:
    """The job is over: stop what still runs; slots go back when it has ended."""
    handling.move_job(state, reason)
    job = handling.job
    job.revivals.clear()
    job.pauses.clear()
    for process in job.live_processes:
        handling.stop_process(process, f"the job {in_words(state)}")
    flags.close_all(handling, f"the job {in_words(state)}")
    return_slots(handling)


def finish_if_all_have(handling: Handling) -> None:
    """The job has succeeded once every live worker has reached its end."""
    job = handling.job
    if job.state is JobState.FINISHING and job.at_work == 0:
        saved = "" if job.model_saved else "; the final parameters were not saved: who was to save them ended before"
        count = job.completed + 1
        in_common = f"{count} iterations were done"
        done = in_common if handling.chosen.gate is None else f"every worker got as far as iteration {count}"
        end(handling, JobState.SUCCEEDED, f"{job.stop_reason}; {done}{saved}")


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
