"""Machines that encrypt: certificates come from the control plane, to those that come later too."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import start_agent
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.integration.test_elastic import lives, process_of
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LABELS = {"network": "encrypted"}


@contextmanager
def encrypting(stack: Stack, folder: Path) -> Iterator[None]:
    """Two machines that encrypt, with three workers and three servers between them."""
    with Supervisor(Interruption()) as supervisor:
        for name, speeds in (("sealed-0", [400.0, 400.0]), ("sealed-1", [400.0])):
            asked = {"name": name, "labels": LABELS}
            supervisor.add(
                start_agent(
                    stack.url,
                    stack.ask("POST", "/api/v1/agents/enrolment-tokens", json=asked)["token"],
                    name=name,
                    folder=folder / name,
                    speeds=speeds,
                    server_slots=2,
                    log=folder / f"{name}.log",
                    encrypts=True,
                )
            )
        eventually(lambda: len(_online(stack)) == 2, what="the machines", seconds=120, every=0.2)
        yield


def _online(stack: Stack) -> list[dict[str, Any]]:
    rows = stack.ask("GET", "/api/v1/agents?page_size=100")["results"]
    return [row for row in rows if row["name"].startswith("sealed-") and row["state"] == "online"]


@pytest.mark.timeout(400)
def test_a_killed_server_and_worker_come_back_with_certificates_of_their_own(stack: Stack, tmp_path: Path) -> None:
    with encrypting(stack, tmp_path):
        job = stack.submit(workers=3, servers=2, labels=LABELS, stop={"iterations": 250})["id"]
        stack.await_iteration(job, 10, seconds=120)
        os.kill(process_of(job, "s1").pid, signal.SIGKILL)
        path = f"/api/v1/jobs/{job}/decisions?kind=refill-blocks"
        eventually(lambda: stack.ask("GET", path)["results"], what="the refill", seconds=60)
        os.kill(process_of(job, "w1").pid, signal.SIGKILL)
        eventually(lambda: lives(stack, job, "w1")[-1]["counts_from"], what="its return", seconds=60)
        assert stack.await_job(job, "succeeded", seconds=120)["iteration"] == 250
        rows = stack.ask("GET", f"/api/v1/jobs/{job}/processes?page_size=100")["results"]
        assert len(rows) >= 7
        assert {row["environment"]["network"] for row in rows} == {"TLS 1.3"}
        page = stack.client.get(f"/jobs/{job}/?tab=placement")
        assert page.is_redirect or "Parameters are sent encrypted (TLS 1.3)." in page.text


@pytest.mark.timeout(400)
def test_an_all_reduce_job_is_refused_where_machines_encrypt(stack: Stack, tmp_path: Path) -> None:
    with encrypting(stack, tmp_path):
        spec = {"workers": 2, "servers": 0, "communication": "all-reduce", "elastic": {"restarts": 0}}
        job = stack.submit(**spec, labels=LABELS, stop={"iterations": 5})["id"]
        reason = stack.await_job(job, "failed", seconds=120)["reason"]
        log = eventually(
            lambda: (said := stack.client.get(f"/api/v1/jobs/{job}/logs/text").text) and "torch.distributed" in said,
            what="the reason in the log",
        )
        assert (bool(reason), log) == (True, True)
