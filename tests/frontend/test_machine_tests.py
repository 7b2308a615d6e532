"""The section of a machine's page about its tests."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.fleet.machine_tests import LIMIT, preflight_ended, preflight_request
from controlplane.fleet.models import Agent, MachineTest, Reservation
from controlplane.protocol.machine_tests import MachineTested
from controlplane.runtime import machine_tests
from tests.frontend.test_pages import text_of
from tests.support.rows import emulated, online_agent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def machine(name: str = "m1", **offer: Any) -> Agent:
    return online_agent(name, **{"tests": True, **offer})


def succeeded(agent: Agent, *, flops: float = 1e11) -> None:
    row = preflight_request(agent=agent, actor="ann", now=timezone.now())
    preflight_ended(agent.pk, MachineTested(number=1, test=row.pk, cpu_flops=flops, seconds=3.0))


def test_the_page_shows_the_result_and_who_may_test(viewer: Client, operator: Client) -> None:
    one, two = machine("m1"), machine("m2", slots=emulated(250.0))
    path = f"/workers/{one.pk}/"
    assert "Not tested yet." in text_of(viewer, path)
    assert 'id="test-machine"' not in viewer.get(path).content.decode()
    assert f'data-post="/api/v1/agents/{one.pk}/actions/test"' in operator.get(path).content.decode()
    succeeded(two)
    succeeded(one, flops=8e10)
    text = text_of(operator, path)
    assert "CPU, float32 80 GFLOP/s 100 GFLOP/s" in text
    assert "20 % below the median of 1 other machine of its class" in text
    assert "at its real speed" in text_of(operator, f"/workers/{two.pk}/")
    preflight_request(agent=one, actor="ann", now=timezone.now())
    assert "Waiting for the machines at the other end of its links." in text_of(operator, path)
    assert 'id="test-machine"' not in operator.get(path).content.decode()
    machine_tests.end_overdue(timezone.now() + LIMIT)
    assert "has no result: nothing came of it within 90 s" in text_of(operator, path)
    assert "CPU, float32 80 GFLOP/s" in text_of(operator, path), "of the last that succeeded"
    Agent.objects.filter(pk=one.pk).update(can_test=False)
    MachineTest.objects.all().delete()
    assert "Its agent (0.1.0) does not support machine tests: update the agent." in text_of(operator, path)


def test_a_button_on_a_machine_in_use_reports_what_a_test_costs(operator: Client) -> None:
    one = machine()
    Reservation.objects.create(agent=one, role="server", slot=0, job_id=7, index=0)
    page = operator.get(f"/workers/{one.pk}/").content.decode()
    assert "the test slows them down" in page
    assert """data-body='{"force": true}'""" in page
