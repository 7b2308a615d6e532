"""docs/alerts.md and the rules for Prometheus have the kinds and thresholds of the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.alerts.conditions import MOST
from controlplane.alerts.kinds import KINDS
from controlplane.alerts.rules import DEFAULT_RULES, parse_rules
from controlplane.alerts.shares import WINDOW_S
from controlplane.core.attached import SILENCE_MS
from controlplane.runtime.alert_view import GONE
from controlplane.runtime.alerting import EVERY_S
from controlplane.runtime.redis_memory import WARN_SHARE

ROOT = Path(__file__).resolve().parents[2]
ALERTS = (ROOT / "docs" / "alerts.md").read_text()
THRESHOLDS = {
    "PacelineJobStalled": ("job-stalled", "after_s"),
    "PacelineWorkersWait": ("waiting", "share"),
    "PacelineIngestBehind": ("ingest-behind", "after_s"),
    "PacelineRedisFilling": ("redis-filling", "used"),
}
"""Rules for Prometheus about the same as a kind, with its parameter."""


def documented() -> dict[str, dict[str, float]]:
    """Parameters with their defaults, by kind, as the table has them: a row of two kinds has one of each."""
    found: dict[str, dict[str, float]] = {}
    for line in re.findall(r"^\| `.*$", ALERTS, re.MULTILINE):
        _, kinds, _, parameters, _ = line.split("|")
        names = re.findall(r"`([\w-]+)`", kinds)
        values = [(name, float(value)) for name, value in re.findall(r"`(\w+)` \(([\d.]+)\)", parameters)]
        shared = [[each] for each in values] if len(names) == len(values) > 1 else [values] * len(names)
        found |= {name: dict(own) for name, own in zip(names, shared, strict=True)}
    return found


def test_the_table_has_every_kind_with_its_parameters() -> None:
    known = {
        name: {each: parameter.default for each, parameter in kind.parameters.items()} for name, kind in KINDS.items()
    }
    assert documented() == known


def test_the_times_and_bounds_of_the_text_are_those_of_the_code() -> None:
    text = " ".join(ALERTS.split())
    assert f"more than this part of the last {WINDOW_S:.0f} s waiting" in text
    assert f"a rank is silent for {SILENCE_MS / 1000 + GONE.total_seconds():.0f} s" in text
    assert f"evaluates rules every {EVERY_S:.0f} s" in text
    assert f"A rule has at most {MOST} alerts at a time" in text


def test_the_example_is_a_document_of_rules() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", ALERTS, re.DOTALL)
    (rule,) = parse_rules(yaml.safe_load(example))
    assert rule.kind == "waiting"


def test_the_default_rules_are_of_every_kind_but_success() -> None:
    assert {rule.kind for rule in DEFAULT_RULES} == KINDS.keys() - {"job-done"}


@pytest.mark.parametrize("alert", THRESHOLDS)
def test_prometheus_has_the_same_thresholds(alert: str) -> None:
    groups: list[dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "grafana" / "alerts.yml").read_text())["groups"]
    (rule,) = (each for group in groups for each in group["rules"] if each["alert"] == alert)
    kind, parameter = THRESHOLDS[alert]
    limits = [float(each) for each in re.findall(r"> ([\d.]+)", rule["expr"])]
    assert KINDS[kind].parameters[parameter].default in limits


def test_the_page_warns_of_redis_where_the_rule_does() -> None:
    assert KINDS["redis-filling"].parameters["used"].default == WARN_SHARE
