"""Agents that torchrun starts on two machines, here on loopback, and a job of one worker on each of them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import start_service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

MACHINES = 2
RANKS = range(MACHINES)


@contextmanager
def launched(stack: Stack, folder: Path) -> Iterator[None]:
    """``torchrun`` once on each machine; the agents end with it."""
    for rank in RANKS:
        asked = {"name": f"launched-{rank}", "labels": {"launched": "yes"}}
        token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json=asked)["token"]
        (folder / f"token-{rank}").write_text(token)
    port = free_port()
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder / "state"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }
    join = [
        *(sys.executable, "-m", "workers", "join", stack.url, f"@{folder}/token-{{rank}}"),
        *("--name", "launched", "--slots", "1", "--server-slots", "0"),
    ]
    with Supervisor(Interruption()) as supervisor:
        for machine in range(MACHINES):
            command = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(MACHINES)),
                *("--node-rank", str(machine), "--nproc-per-node", "1"),
                *("--master-addr", "127.0.0.1", "--master-port", str(port), "--no-python", *join),
            ]
            log = folder / f"torchrun-{machine}.log"
            name = f"torchrun {machine}"
            supervisor.add(start_service(name, command, log=log, environment=environment, folder=CHECKOUT))
        yield


def agents(stack: Stack) -> dict[str, dict[str, Any]]:
    """Those of the launcher that are here, by their names."""
    rows = stack.ask("GET", "/api/v1/agents?page_size=100")["results"]
    return {row["name"]: row for row in rows if row["name"].startswith("launched-") and row["state"] == "online"}


@pytest.mark.timeout(500)
def test_workers_that_torchrun_started_on_two_machines_add_up_together(stack: Stack, tmp_path: Path) -> None:
    with launched(stack, tmp_path):
        eventually(lambda: len(agents(stack)) == len(RANKS), what="the launched agents", seconds=180, every=0.2)
        assert set(agents(stack)) == {f"launched-{rank}" for rank in RANKS}
        there = {"workers": MACHINES, "labels": {"launched": "yes"}}
        job = stack.submit(communication="all-reduce", servers=0, stop={"iterations": 20}, **there)["id"]
        done = stack.await_job(job, "succeeded", seconds=180)
        assert (done["iteration"], done["samples"]) == (20, 20 * 16 * MACHINES)
        processes = stack.ask("GET", f"/api/v1/jobs/{job}/processes")["results"]
        assert {process["agent"] for process in processes} == {f"launched-{rank}" for rank in RANKS}
