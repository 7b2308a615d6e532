"""Some hundred mutated frames over every socket and the data plane: nobody notices. ``bench fuzz`` sends a million."""

import httpx
import psutil
import pytest

from benchmarks.faults.injection import processes_of
from benchmarks.live.cluster import ANSWER_S, BenchCluster
from benchmarks.security.data_plane import fuzz_servers, fuzz_sessions
from benchmarks.security.fuzz import own_ways
from benchmarks.security.fuzzers import fuzz_sockets
from benchmarks.security.hostile import ports_of
from benchmarks.security.own_server import own_server
from controlplane.gateway.routing import websocket_urlpatterns
from tests.integration.test_elastic import lives
from tests.support.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]

SEED = 5
FRAMES, TRANSFERS = 600, 30
RATE = 100_000.0


def as_cluster(stack: Stack, client: httpx.Client) -> BenchCluster:
    """The running control plane, as benchmarks reach theirs."""
    return BenchCluster(stack.plane, stack.environment, stack.supervisor, client)


def test_mutated_frames_break_no_service_and_no_job_of_others(stack: Stack) -> None:
    bystander = stack.submit(name="bystander", stop={"iterations": 10**6}, emulate=[{"samples_per_second": 160}] * 4)[
        "id"
    ]
    stack.await_iteration(bystander, 5)
    services = {service.name: service.process.pid for service in stack.supervisor.services}
    before = {name: lives(stack, bystander, name) for name in ("w0", "w1", "w2", "w3", "s0", "s1")}
    headers = {"Authorization": f"Bearer {stack.token}"}
    address = f"{stack.url}/api/v1/"
    with (
        httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, trust_env=False) as client,
        own_server() as own,
    ):
        ways = own_ways(as_cluster(stack, client))
        assert len(ways) == len(websocket_urlpatterns)
        sent = fuzz_sockets(ways, SEED, FRAMES, RATE)
        ports = sorted({port for server in processes_of(bystander, "s") for port in ports_of(server)})
        strangers = fuzz_servers(ports, SEED, TRANSFERS, RATE)
        insiders = fuzz_sessions(own.own, SEED, TRANSFERS, RATE)
        assert own.lives
        reached = stack.job(bystander)["iteration"]
        stack.await_iteration(bystander, reached + 20)
    assert (sent.frames, strangers.frames, insiders.frames) == (FRAMES, TRANSFERS, TRANSFERS)
    assert {answer.partition(":")[0] for answer in sent.answers} == {way.name for way in ways}, (
        "each socket refused some"
    )
    assert {service.name: service.process.pid for service in stack.supervisor.services} == services
    assert all(psutil.pid_exists(pid) for pid in services.values())
    after = {name: lives(stack, bystander, name) for name in before}
    assert {name: [each["instance"] for each in rows] for name, rows in after.items()} == {
        name: [each["instance"] for each in rows] for name, rows in before.items()
    }
