"""The dashboard, the alert rules and the example of a scrape, without a control plane."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.api.metrics.families import measured_name
from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS
from tests.architecture.sources import ROOT

FOLDER = ROOT / "deploy" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())
INSTALL = "no Prometheus: install prometheus, which has promtool (apt-get install prometheus)"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip(INSTALL)
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    yield from (rule["expr"] for group in ALERTS["groups"] for rule in group["rules"])


def told(command: list[str], folder: Path = FOLDER) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_they_fire_when_they_should(promtool: str) -> None:
    told([promtool, "check", "rules", "alerts.yml"])
    told([promtool, "test", "rules", "alerts_test.yml"])


def test_promtool_accepts_the_example_of_a_scrape(promtool: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    token = tmp_path / "token"
    token.touch()
    config["scrape_configs"][0]["authorization"]["credentials_file"] = str(token)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    told([promtool, "check", "config", "prometheus.yml"], tmp_path)


def test_alerts_report_how_bad_it_is_what_is_so_and_what_to_do() -> None:
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_have_one_place_each_and_one_data_source() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}
    for panel in panels():
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert [target["refId"] for target in panel["targets"]] == ["A", "B"][: len(panel["targets"])]


def test_metrics_that_are_named_are_those_that_the_documentation_lists() -> None:
    """Prometheus answers a query of a metric that does not exist with nothing, and no alert ever fires."""
    text = (ROOT / "docs" / "operating.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    listed: list[str] = []
    for row in text.splitlines():
        if row.startswith("| `paceline_"):
            names = [name.partition("{")[0] for name in re.findall(r"`([^`]+)`", row)]
            subject = "_".join(names[0].split("_")[:2])
            listed += [name if name.startswith("paceline_") else subject + name for name in names]
    patterns = [re.compile(name.replace("*", r"\w+") + r"(_bucket)?") for name in listed]
    named = {name for each in expressions() for name in re.findall(r"\bpaceline_\w+", each)}
    assert len(named) > 30
    allowed = {"paceline_metrics_left_out"}
    allowed |= {measured_name("worker", each) for each in OF_WORKERS}
    allowed |= {measured_name("machine", each) for each in OF_MACHINES}
    assert {name for name in named - allowed if not any(pattern.fullmatch(name) for pattern in patterns)} == set()
