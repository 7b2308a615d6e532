"""A real job whose worker is killed: the alert fires, is delivered, and resolves when the worker is back."""

import os
import signal
import time
from typing import Any

import pytest

from controlplane.alerts.signing import verified
from tests.alerts.receiver import Receiver, listening
from tests.integration.test_elastic import lives, process_of
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SECRET = "the receiver's secret"


def messages(receiver: Receiver, notice: str) -> list[dict[str, Any]]:
    return [each.document for each in receiver.unique if each.document["notice"] == notice]


def test_a_killed_worker_raises_worker_lost_and_it_resolves(stack: Stack) -> None:
    with listening() as receiver:
        receiver.answer(503)
        target = {"name": "oncall", "kind": "webhook", "url": receiver.url, "secret": SECRET}
        number = stack.ask("POST", "/api/v1/alerts/targets", json=target)["id"]
        rule = {"name": "lost", "kind": "worker-lost", "severity": "critical", "clear_s": 0, "targets": ["oncall"]}
        rule["where"] = {"job": "nightly"}  # other tests on this stack lose workers, too
        stack.ask("POST", "/api/v1/alerts/rules", json=rule)
        job = stack.submit(name="nightly", stop={"iterations": 3_000}, emulate=[{"samples_per_second": 400}] * 4)["id"]
        stack.await_iteration(job, 10)
        os.kill(process_of(job, "w1").pid, signal.SIGKILL)
        (fired,) = eventually(lambda: messages(receiver, "firing"), what="the message that it fires", seconds=60)
        assert (fired["job"], fired["severity"], fired["labels"]["worker"]) == (job, "critical", "w1")
        assert f"w1 of job {job} (nightly)" in fired["summary"]
        assert "was ended by signal 9" in fired["summary"]
        again = [each for each in receiver.received if each.document["notice"] == "firing"]
        eventually(lambda: lives(stack, job, "w1")[-1]["state"] == "ready", what="its return", seconds=60)
        (resolved,) = eventually(lambda: messages(receiver, "resolved"), what="that it resolved", seconds=120)
        assert resolved["alert"] == fired["alert"]
        assert all(verified(SECRET, each.body, each.headers, time.time()) for each in again)
        (row,) = stack.ask("GET", f"/api/v1/alerts?job={job}")["results"]
        assert (row["stage"], row["rule"]) == ("resolved", "lost")
        page = stack.client.get(row["path"], follow_redirects=False)
        assert page.status_code in {200, 302}
        (decided,) = [
            each
            for each in stack.ask("GET", f"/api/v1/jobs/{job}/decisions?page_size=500")["results"]
            if row["path"].endswith(f"#decision-{each['incarnation']}-{each['sequence']}")
        ]
        assert decided["at"] <= row["fired_at"]
        sent = stack.ask("GET", "/api/v1/alerts/deliveries?target=oncall")["results"]
        assert {each["state"] for each in sent} == {"delivered"}
        assert max(each["attempts"] for each in sent) == 2, "the first attempt was refused with 503"
        assert len(receiver.received) == len(receiver.unique) + 1
        stack.stop(job)
        for each in stack.ask("GET", "/api/v1/alerts/rules")["results"]:
            stack.client.delete(f"/api/v1/alerts/rules/{each['id']}")
        assert stack.client.delete(f"/api/v1/alerts/targets/{number}").status_code == 204
