"""A real Prometheus scrapes a control plane on which jobs train: every panel has data, every rule evaluates."""

import math
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controlplane.protocol.messages import IterationReport
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import start_service, stop_services
from tests.deploy.test_grafana import ALERTS, DASHBOARD, FOLDER, INSTALL, panels
from tests.integration.test_attached import Launched, launched
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

GPU = {"gpu_utilization": 0.8, "gpu_memory": 2.0**33, "gpu_power": 300.0, "gpu_temperature": 70.0}


class Prometheus:
    """One that runs, and what it answers."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, path: str, **parameters: str) -> Any:
        reply = self._client.get(f"/api/v1/{path}", params=parameters)
        assert reply.is_success, reply.text
        return reply.json()["data"]

    def answers(self) -> bool:
        try:
            return self._client.get("/-/ready").is_success
        except httpx.HTTPError:
            return False

    def values(self, query: str) -> list[float]:
        """The numbers that a query has now."""
        rows = self.ask("query", query=query)["result"]
        return [value for row in rows if math.isfinite(value := float(row["value"][1]))]


@pytest.fixture
def training(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    """A native job with servers, and an attached one whose ranks have GPUs."""
    monkeypatch.setattr("paceline.ranks.IterationReport", partial(IterationReport, **GPU))
    native = stack.submit(stop={"iterations": 100_000}, synchronization={"batching": "lb-bsp-cpu"})["id"]
    with launched(stack) as attached:
        stack.await_iteration(native, 20)
        yield attached
    stack.stop(native)


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path) -> Iterator[Prometheus]:
    """The example's configuration, but for address, token and pace."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip(INSTALL)
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    (tmp_path / "token").write_text(stack.token)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    (scrape,) = config["scrape_configs"]
    scrape["scrape_timeout"] = "1s"
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    scrape["static_configs"] = [{"targets": [stack.url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    service = start_service("prometheus", command, log=tmp_path / "prometheus.log", folder=tmp_path)
    try:
        with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=10.0) as client:
            running = Prometheus(client)
            eventually(running.answers, what="the start of Prometheus")
            yield running
    finally:
        stop_services([service])


def test_every_panel_has_data_and_every_rule_evaluates(
    training: Launched, prometheus: Prometheus, stack: Stack
) -> None:
    queries = {
        (panel["title"], target["expr"].replace("$job_id", ".*").replace("$__rate_interval", "10s"))
        for panel in panels()
        for target in panel["targets"]
    }
    without = set(queries)

    def filled() -> bool:
        training.iterate(10)
        without.difference_update({each for each in without if prometheus.values(each[1])})
        return not without

    try:
        eventually(filled, what="data in every panel", seconds=60, every=0.5)
    except AssertionError:
        pytest.fail(f"no data after 60 s: {sorted(without)}; {prometheus.ask('targets')['activeTargets']}")

    assert prometheus.values("up") == [1.0]
    variable = DASHBOARD["templating"]["list"][1]["query"]["query"]
    assert variable == "label_values(paceline_job_info, job_id)"
    jobs = {row["job_id"] for row in prometheus.ask("series", **{"match[]": "paceline_job_info"})}
    assert str(training.number) in jobs

    def rules() -> list[dict[str, Any]]:
        found = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    found = eventually(rules, what="the evaluation of every rule", every=0.5)
    assert {rule["name"] for rule in found} == {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
    firing = {rule["name"] for rule in found if rule["state"] == "firing"}
    assert firing.isdisjoint({"PacelineDown", "PacelineHistoryStopped", "PacelineNoPeriodicTasks"})


def test_a_scrape_without_a_token_is_refused(stack: Stack) -> None:
    reply = httpx.get(f"{stack.url}/metrics", trust_env=False)
    assert (reply.status_code, reply.headers["content-type"]) == (401, "application/problem+json")
