"""Two web processes behind HAProxy and two that decide, with PostgreSQL, and Redis behind TLS and a password."""

import json
import random
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import redis
from websockets.sync.client import ClientConnection, connect

from controlplane.runtime import names, presence
from controlplane.runtime.embedded.control_plane import is_ready
from tests.integration.test_jobs import reports
from tests.support.several import INSTALL_HAPROXY, INSTALL_REDIS, Several, running_several
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LONG = {"workers": 4, "servers": 1, "stop": {"iterations": 10_000}}


@pytest.fixture(scope="module")
def several(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    if shutil.which("haproxy") is None:
        pytest.skip(INSTALL_HAPROXY)
    if shutil.which("redis-server") is None:
        pytest.skip(INSTALL_REDIS)
    with running_several(tmp_path_factory.mktemp("several"), postgres_url) as running:
        yield running


@pytest.fixture(autouse=True)
def free_machines(several: Several) -> Iterator[None]:
    """No test leaves a job behind that holds the machines."""
    yield
    several.restore()
    several.stop_what_is_left()


def sockets(several: Several) -> dict[str, int]:
    """Sockets of machines, by web process, as these say."""
    with redis.Redis.from_url(several.environment["REDIS_URL"], decode_responses=True) as client:
        return {name: int(text.split()[1]) for name, text in client.hgetall(names.GATEWAY_SOCKETS).items()}


@contextmanager
def signed_in(several: Several, url: str) -> Iterator[httpx.Client]:
    """A browser's session, made at one web process."""
    with httpx.Client(base_url=url, trust_env=False, follow_redirects=True, timeout=60.0) as client:
        page = client.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None
        form = {"username": several.user, "password": several.password, "csrfmiddlewaretoken": token[1]}
        reply = client.post("/login/", data=form, headers={"Referer": several.url, "Origin": several.url})
        assert reply.status_code == 200, reply.text
        assert client.cookies.get("sessionid")
        yield client


@contextmanager
def listening(several: Several, url: str, session: str) -> Iterator[ClientConnection]:
    """A page's socket at one web process."""
    with connect(
        f"{url.replace('http', 'ws', 1)}/ws/pages",
        additional_headers={"Cookie": f"sessionid={session}"},
        subprotocols=["paceline.v1"],
        origin=several.url,
        proxy=None,
    ) as socket:
        json.loads(socket.recv(timeout=60))
        yield socket


def test_every_connection_to_redis_is_verified_and_none_goes_around_tls(several: Several) -> None:
    url = several.environment["REDIS_URL"]
    assert url.startswith("rediss://")
    with redis.Redis.from_url(url) as client:
        assert client.config_get("port")["port"] == "0"
        assert len(client.client_list()) > len(several.supervisor.services)
    with redis.Redis.from_url(url.partition("?")[0]) as stranger, pytest.raises(redis.ConnectionError, match="verify"):
        stranger.ping()


def test_a_job_trains_on_machines_whose_sockets_are_spread_over_the_web_processes(several: Several) -> None:
    job = several.submit(**LONG)["id"]
    several.await_iteration(job, 5)
    eventually(lambda: sum(n > 0 for n in sockets(several).values()) == 2, what="sockets at both", seconds=30)
    with redis.Redis.from_url(several.environment["REDIS_URL"]) as client:
        assert len(presence.gateways_now(client)) == 2
        assert sum(1 for _ in client.scan_iter(match=names.process("*"))) == 2
    several.stop(job)
    short = several.submit(stop={"iterations": 20})["id"]
    done = several.await_job(short, "succeeded")
    assert (done["iteration"], done["samples"]) == (20, 20 * 64)
    model = eventually(
        lambda: (reply := several.client.get(f"/api/v1/jobs/{short}/model")).is_success and reply.content,
        what="the model",
    )
    for url in several.webs:
        headers = several.client.headers
        assert httpx.get(f"{url}/api/v1/jobs/{short}/model", headers=headers, trust_env=False).content == model


def test_who_signs_in_at_one_is_signed_in_at_both_and_sees_the_same(several: Several) -> None:
    job = several.submit(stop={"iterations": 10})["id"]
    several.await_job(job, "succeeded")
    with signed_in(several, several.webs[0]) as client:
        for url in (*several.webs, several.url):
            for path in ("/", "/jobs/", f"/jobs/{job}/", "/workers/", "/system/"):
                page = client.get(url + path)
                assert (page.status_code, page.url.path) == (200, path), (url, path)
            system = client.get(f"{url}/system/").text
            assert "No heartbeat from" not in system


def test_pages_at_either_hear_of_the_same_job(several: Several) -> None:
    with signed_in(several, several.url) as client, ExitStack() as stack:
        session = client.cookies["sessionid"]
        ears = [stack.enter_context(listening(several, url, session)) for url in (*several.webs, several.url)]
        job = several.submit(stop={"iterations": 10})["id"]
        for ear in ears:
            assert hears(ear, job, "succeeded")


def hears(ear: ClientConnection, job: int, state: str) -> bool:
    """Whether that is said of the job before long."""
    while state not in json.loads(ear.recv(timeout=60))["jobs"].get(str(job), ""):
        pass
    return True


@pytest.mark.thorough
def test_a_job_continues_through_one_fault_after_another(several: Several) -> None:
    """Kills, and decision processes that are frozen past their lease and wake up beside their successors."""
    faults = [
        ("kill", "web"),
        ("kill", "web-2"),
        ("freeze", "decisions"),
        ("freeze", "decisions-2"),
        ("kill", "decisions"),
    ]
    random.Random(17).shuffle(faults)
    job = several.submit(**LONG)["id"]
    several.await_iteration(job, 5)
    for fault, name in faults:
        there, service = several.job(job)["iteration"], several.service(name)
        if fault == "kill":
            several.kill(name)
        else:
            service.process.send_signal(signal.SIGSTOP)
        try:
            several.await_iteration(job, there + 30)
        finally:
            if fault == "freeze":
                service.process.send_signal(signal.SIGCONT)
        several.restore()
        several.await_iteration(job, several.job(job)["iteration"] + 10)
    several.stop(job)
    done = several.job(job)
    lives = [(row["role"], row["index"]) for row in several.rows(f"/api/v1/jobs/{job}/processes")]
    assert sorted(lives) == [("server", 0), *(("worker", rank) for rank in range(4))], "each has had one life"
    # What the database did not have yet was said again, so the log may have it twice; rows and sums have it once.
    reported = {(rank, k) for rank, k in reports(several, job) if k < done["iteration"]}
    assert reported == {(rank, k) for rank in range(4) for k in range(done["iteration"])}
    rows = several.ask("GET", f"/api/v1/jobs/{job}/metrics?metric=samples&points=2000")["series"]
    samples = [sum(column) for column in zip(*(row["values"] for row in rows), strict=True)]
    assert samples[: done["iteration"]] == [64.0] * done["iteration"], "each report is recorded once"
    assert 0 <= done["samples"] - done["iteration"] * 64 < 64, "all, and of the last iteration a part"


def test_requests_continue_while_a_web_process_is_replaced(several: Several) -> None:
    answered = Counter[int]()
    service = several.service("web-2")
    service.process.send_signal(signal.SIGTERM)
    while not service.is_over():
        answered[several.client.get("/api/v1/jobs").status_code] += 1
    for _ in range(20):
        answered[several.client.get("/api/v1/jobs").status_code] += 1
    several.restart("web-2")
    eventually(lambda: is_ready(several.webs[1]), what="its return", seconds=60)
    assert set(answered) == {200}
