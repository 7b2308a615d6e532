"""Machines and links: every worker with every server, or in a ring; and the GPUs of workers."""

import json
from dataclasses import replace

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.models import Agent
from frontend.build import build_figure
from frontend.figures.rows import View
from frontend.figures.topology import ServerNode, Topology, WorkerNode, topology
from tests.frontend import factories
from tests.frontend.rows import linked
from tests.frontend.test_pages import text_of
from tests.telemetry.reports import change_reports

workers = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


@given(workers, st.integers(0, 4))
def test_every_worker_is_linked_with_every_server_or_with_the_next_worker(waits: list[float], count: int) -> None:
    found = Topology(
        workers=tuple(WorkerNode(index=k, machine=f"m{k % 3}", waiting=each) for k, each in enumerate(waits)),
        servers=tuple(ServerNode(index=k, machine=f"m{k}", held_bytes=k << 20) for k in range(count)),
        roster=len(waits),
    )
    figure = topology(found, View())
    links = sum(len(trace["x"]) // 4 for trace in figure["data"] if trace["mode"] == "lines")
    assert links == (len(waits) * count if count else len(waits) * (len(waits) > 1))


def test_lines_report_how_much_their_worker_waits_and_racks_are_apart() -> None:
    figure = topology(linked(), View())
    lines = {trace["name"]: trace["text"] for trace in figure["data"] if trace["mode"] == "lines"}
    assert list(lines) == ["waits under 10%", "25 to 50%", "over 50%"]
    assert "w0 with s1: 2 MiB each way" in lines["over 50%"]
    assert len(figure["layout"]["shapes"]) == 1
    caption = figure["layout"]["meta"]["caption"]
    assert "2 machines in 2 racks. Every worker exchanges with every server" in caption
    assert "w0 waits most, 60% of its time." in caption
    assert "Lines follow from the placement: traffic between two processes is not measured." in caption
    ring = topology(replace(linked(), servers=()), View())["layout"]["meta"]["caption"]
    assert "Workers form a ring all-reduce" in ring


@pytest.mark.django_db
def test_a_jobs_processes_are_drawn_on_their_machines_by_rack() -> None:
    job = factories.demo_job()
    Agent.objects.filter(name="machine-3").update(labels={"rack": "b"})
    figure = json.loads(build_figure("topology", job, {}))
    assert figure["layout"]["yaxis"]["ticktext"] == ["machine-0", "machine-1", "machine-2", "machine-3 · b"]
    named = {trace["name"]: trace["text"] for trace in figure["data"] if trace["mode"] != "lines"}
    assert named == {"Workers": ["w0", "w1", "w2", "w3"], "Servers": ["s0", "s1"]}


@pytest.mark.django_db
def test_the_gpus_of_workers_are_shown_side_by_side(viewer: Client) -> None:
    job = factories.demo_job()
    page = text_of(viewer, f"/jobs/{job.pk}/?tab=workers")
    assert "w3 machine-3 " in page
    assert " W " in page
    assert "°C" in page
    change_reports(lambda _: {"others": {}})
    bare = factories.make_job(name="bare")
    assert "No worker reports a GPU." in text_of(viewer, f"/jobs/{bare.pk}/?tab=workers")
