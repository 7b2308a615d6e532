"""PSLD end to end: processes of their own, a thin link that is left, a server that is added, and the same numbers."""

import io
from typing import Any

import numpy as np
import pytest

from controlplane.protocol.spec import parse_spec
from tests.properties.test_training import single_process_run
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

ITERATIONS, WORKERS, BATCH = 50, 2, 16
FAST, THIN = {"bytes_per_second": 5e6}, {"bytes_per_second": 5e5}
PSLD = {
    "name": "psld",
    "block_bytes": 4096,
    "every": 4,
    "probe_every": 2,
    "forgetting": 0.8,
    "scale_threshold": 1.0,
}


def of_kind(stack: Stack, job: int, kind: str) -> list[dict[str, Any]]:
    """The payloads of the job's decisions of that kind, the first one first."""
    found = stack.rows(f"/api/v1/jobs/{job}/decisions?kind={kind}&page_size=500")
    return [row["payload"] for row in reversed(found)]


def test_blocks_leave_a_thin_server_one_is_added_and_the_model_is_that_of_one_process(stack: Stack) -> None:
    submitted = stack.submit(
        workload={"name": "mlp", "dataset": "digits", "options": {"hidden": [160]}},
        workers=WORKERS,
        servers=3,
        batch_size=BATCH,
        optimizer={"name": "sgd", "lr": 0.2, "momentum": 0.9},
        synchronization={"placement": PSLD},
        emulate_servers=[FAST, FAST, THIN],
        stop={"iterations": ITERATIONS},
    )
    job = submitted["id"]
    stack.await_job(job, "succeeded", seconds=90)

    placements = eventually(lambda: of_kind(stack, job, "set-placement"), what="placements")
    held = [[sum(block["server"] == s for block in placed["blocks"]) for s in range(4)] for placed in placements]
    assert held[-1][2] < held[0][2], "blocks leave the thin server"
    assert (held[0][3], held[-1][3] > 0) == (0, True), "the added server holds some"
    assert of_kind(stack, job, "request-slot")[0]["index"] == 3
    measured = of_kind(stack, job, "measure-placement")
    assert measured[0]["after_s"] < measured[0]["before_s"]

    model = eventually(
        lambda: (reply := stack.client.get(f"/api/v1/jobs/{job}/model")).is_success and reply.content, what="the model"
    )
    arrays = np.load(io.BytesIO(model), allow_pickle=False)
    found = np.concatenate([arrays[name].ravel() for name in arrays])
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(ITERATIONS)]
    expected = single_process_run(parse_spec(submitted["spec"]), batches)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    shown = stack.ask("GET", f"/api/v1/jobs/{job}/placement")
    assert shown["version"] == placements[-1]["version"]
    eventually(lambda: not any(agent["reserved"] for agent in _machines(stack)), what="the slots' release")


def _machines(stack: Stack) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stack.ask("GET", "/api/v1/agents")["results"]
    return rows
