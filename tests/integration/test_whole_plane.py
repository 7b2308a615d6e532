"""The plane that tests share: whatever a test does to it, the next one finds it whole."""

import os
import signal

import psutil
import pytest

from tests.support.stack import Broken, Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.thorough]


def test_a_plane_without_its_web_process_gets_another_and_the_test_that_did_it_is_reported(stack: Stack) -> None:
    os.kill(stack.service("web").process.pid, signal.SIGKILL)
    stack.service("web").process.wait()
    with pytest.raises(Broken, match="left the control plane broken, which was repaired: web was ended by SIGKILL"):
        stack.leave()
    assert stack.make_whole() == []
    stack.await_job(stack.submit()["id"], "succeeded")


def test_a_service_that_stalls_continues(stack: Stack) -> None:
    decisions = psutil.Process(stack.service("decisions").process.pid)
    decisions.suspend()
    eventually(lambda: decisions.status() == psutil.STATUS_STOPPED, what="the stall of decisions")
    assert stack.make_whole() == ["decisions stood still"]
    stack.await_job(stack.submit()["id"], "succeeded")


def test_machines_that_are_gone_come_back(stack: Stack) -> None:
    stack.kill("agent machines")
    assert stack.make_whole() == ["agent machines was ended by SIGKILL"]
    stack.await_job(stack.submit()["id"], "succeeded")


def test_what_runs_is_left_as_it_is(stack: Stack) -> None:
    before = [service.process.pid for service in stack.supervisor.services]
    stack.leave()
    assert [service.process.pid for service in stack.supervisor.services] == before


def test_a_plane_that_cannot_be_repaired_is_replaced_by_a_new_one(stack: Stack) -> None:
    before = stack.url
    stack.kill("redis")
    with pytest.raises(Broken, match="replaced by a new one: redis was ended by SIGKILL; redis cannot be started"):
        stack.leave()
    assert stack.url != before
    stack.await_job(stack.submit()["id"], "succeeded")
