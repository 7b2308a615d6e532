"""Traces of decisions from containers: OpenTelemetry is in the image, and a receiver can be reached and is told."""

import re
from typing import Any

import jsonschema
import yaml

from controlplane.config.environment import OTLP_ENDPOINTS
from tests.deploy.compose_schema import COMPOSE
from tests.deploy.kubernetes import named, pods, service
from tests.deploy.reading import ROOT, compose, stages

EXPORTING = {"web", "decisions"}
"""Services with spans: arrival of a report, and its decision."""


def merged(base: Any, more: Any) -> Any:
    """As compose merges files: mappings by key, sequences one after the other, other values by the later file."""
    if isinstance(base, dict) and isinstance(more, dict):
        return base | {key: merged(base[key], value) if key in base else value for key, value in more.items()}
    return [*base, *more] if isinstance(base, list) and isinstance(more, list) else more


def traced() -> dict[str, Any]:
    override = yaml.safe_load((ROOT / "deploy" / "tracing.yml").read_text())
    document: dict[str, Any] = merged(compose(), override)
    return document


def test_both_files_together_follow_the_compose_specification() -> None:
    jsonschema.Draft202012Validator(COMPOSE).validate(traced())


def test_services_with_spans_reach_a_receiver() -> None:
    document = traced()
    outward = {name for name, network in document["networks"].items() if not (network or {}).get("internal")}
    for name in EXPORTING:
        assert outward & set(document["services"][name]["networks"]), name
    assert not outward & set(compose()["services"]["decisions"]["networks"]), "without the file it reaches nothing"
    for name in ("postgres", "redis", "migrate", "beat"):
        assert document["services"][name]["networks"] == ["stores"]


def test_every_service_of_the_image_builds_it_with_opentelemetry() -> None:
    """Services share one image: the last build counts."""
    ours = [each for each in traced()["services"].values() if each["image"] == "paceline/controlplane"]
    assert {each["build"]["args"]["TRACING"] for each in ours} == {"1"}
    assert len(ours) == 6
    (install,) = (step.rest for step in stages()["controlplane"] if "TRACING" in step.rest and step.word == "RUN")
    (lock,) = re.findall(r"-r (\S+)", install)
    assert "opentelemetry-exporter-otlp-proto-http==" in (ROOT / lock).read_text()


def test_settings_of_ones_own_name_the_receiver() -> None:
    for name in EXPORTING:
        files = [each["path"] for each in traced()["services"][name]["env_file"]]
        assert files == ["deploy/env/settings.env"]


def test_pods_are_told_of_the_receiver_and_no_policy_keeps_them_from_it() -> None:
    workloads = pods("overlays/traced")
    for name in EXPORTING:
        environment = service("overlays/traced", workloads[name])["environment"]
        assert set(OTLP_ENDPOINTS) & set(environment), name
    policies = named("overlays/traced", "NetworkPolicy").values()
    assert {kind for each in policies for kind in each["spec"]["policyTypes"]} == {"Ingress"}
