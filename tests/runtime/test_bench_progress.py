"""What fault benchmarks read from a job's log."""

import pytest

from benchmarks.faults.progress import Progress
from controlplane.runtime import log
from controlplane.runtime.redis import Client
from tests.runtime import support


@pytest.mark.usefixtures("enqueued")
def test_the_first_report_of_an_iteration_is_progress_and_so_is_one_of_a_new_generation(client: Client) -> None:
    support.submit(client)
    progress = Progress(client, support.JOB)
    said = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1), (0, 0, 2), (1, 1, 1)]
    entries = [
        log.append_event(
            support.JOB,
            support.report(iteration + 2, rank=rank, iteration=iteration, generation=generation),
            client=client,
        )
        for rank, iteration, generation in said
    ]
    times = progress.since_last_look()
    assert times == sorted(times)
    assert len(times) == 3, entries
    assert progress.since_last_look() == []
