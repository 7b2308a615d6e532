"""deploy/kubernetes: valid objects, safe pods, and the commands that run on one machine."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet.cluster import AUDIENCE, parse_accounts
from controlplane.runtime.embedded import control_plane
from tests.deploy.kubernetes import FOLDER, containers, image, named, pods, rendered
from tests.deploy.kustomize import render
from tests.deploy.reading import ROOT, services, stages

CONTROL_PLANE = ("overlays/small", "overlays/accounts", "overlays/production", "overlays/traced")
EVERY = (*CONTROL_PLANE, "agents", "agents-by-account", "overlays/agents-with-gpus", "training")
CUSTOM = ("jobset", "trainjob")
COMPONENTS = ("stores", "ranks", "token-review", "tracing", "checkpoints", "gpus")
OF_NO_NAMESPACE = {"Namespace", "ClusterRoleBinding"}


def every_pod() -> Iterator[tuple[str, dict[str, Any]]]:
    for overlay in EVERY:
        for name, pod in pods(overlay).items():
            yield f"{overlay}: {name}", pod


@pytest.mark.parametrize("overlay", EVERY)
def test_every_object_follows_kubernetes_own_schema(overlay: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for document in rendered(overlay):
        validate(document, "1.33", strict=True)


@pytest.mark.parametrize("overlay", [*EVERY, *CUSTOM])
def test_every_kustomization_is_part_of_what_is_rendered(overlay: str) -> None:
    tried = {FOLDER / each for each in (*EVERY, *CUSTOM, "base")} | {
        FOLDER / "components" / each for each in COMPONENTS
    }
    assert {path.parent for path in FOLDER.rglob("kustomization.yaml")} == tried
    assert {each["metadata"]["namespace"] for each in rendered(overlay) if each["kind"] not in OF_NO_NAMESPACE} == {
        "paceline"
    }


def test_no_pod_may_do_more_than_the_restricted_standard_lets_it() -> None:
    (namespace,) = named("overlays/small", "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, pod in every_pod():
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
        assert security["runAsUser"] > 0, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_every_container_reports_what_it_needs_and_how_much_memory_it_may_take() -> None:
    for overlay in EVERY:
        for container in containers(overlay):
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_every_lasting_container_has_probes() -> None:
    for name, pod in every_pod():
        if pod.get("restartPolicy") in {"OnFailure", "Never"}:
            continue
        (container,) = pod["containers"]
        assert "livenessProbe" in container, name
        assert {"startupProbe", "readinessProbe"} & set(container), name


def test_commands_are_those_that_run_on_one_machine() -> None:
    found = {name: pod["containers"][0].get("command") for name, pod in pods("overlays/production").items()}
    assert found == {
        "migrate": ["python", "manage.py", "migrate", "--no-input"],
        "web": ["python", *control_plane.web_command("0.0.0.0", 8000)[1:]],
        "decisions": ["python", *control_plane.DECISIONS[1:]],
        "history": ["python", *control_plane.HISTORY[1:]],
        "beat": ["python", *control_plane.BEAT[1:]],
    }


def test_stores_run_as_in_containers_without_kubernetes() -> None:
    small = pods("overlays/small")
    compose = services()
    password = ("$$(cat /run/secrets/redis_password)", "$REDIS_PASSWORD")  # a file there, the environment here
    assert small["redis"]["containers"][0]["command"] == [
        word.replace(*password).replace("$$", "$") for word in compose["redis"]["command"]
    ]
    assert small["postgres"]["containers"][0]["args"] == compose["postgres"]["command"]
    images = {name: small[name]["containers"][0]["image"] for name in ("redis", "postgres")}
    assert {name: compose[name]["image"] for name in images} == {
        name: f"${{{name.upper()}_IMAGE:-{image}}}" for name, image in images.items()
    }


@pytest.mark.parametrize("overlay", CONTROL_PLANE)
def test_web_has_replicas_that_survive_a_drained_node_and_the_rest_are_single_instances(overlay: str) -> None:
    deployments = named(overlay, "Deployment")
    replicas = {name: each["spec"]["replicas"] for name, each in deployments.items()}
    web = replicas.pop("web")
    assert web >= 2
    assert replicas == {"decisions": 1, "history": 1, "beat": 1}
    assert {deployments[name]["spec"]["strategy"]["type"] for name in replicas} == {"Recreate"}
    assert named(overlay, "PodDisruptionBudget")["web"]["spec"]["minAvailable"] == web - 1


def test_variables_are_those_that_the_settings_read() -> None:
    known = (ROOT / "controlplane" / "config" / "environment.py").read_text()
    for overlay in CONTROL_PLANE:
        (settings,) = named(overlay, "ConfigMap").values()
        assert {name for name in settings["data"] if f'"{name}"' not in known} == set()


def test_no_object_contains_secrets() -> None:
    for overlay in EVERY:
        assert named(overlay, "Secret") == {}
        for container in containers(overlay):
            assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & {each["name"] for each in container.get("env", [])}


def test_volumes_are_declared_and_used() -> None:
    for name, pod in every_pod():
        mounted = {each["name"] for container in pod["containers"] for each in container["volumeMounts"]}
        declared = {each["name"] for each in pod.get("volumes", [])}
        templates = {
            each["metadata"]["name"]
            for overlay in EVERY
            for sets in named(overlay, "StatefulSet").values()
            if sets["spec"]["template"]["spec"] is pod
            for each in sets["spec"]["volumeClaimTemplates"]
        }
        assert mounted == declared | templates, name


def test_services_reach_the_ports_that_are_listened_on() -> None:
    for overlay in EVERY:
        ports = {
            (pod_name, port["name"])
            for pod_name, pod in pods(overlay).items()
            for container in pod["containers"]
            for port in container.get("ports", [])
        }
        for service in named(overlay, "Service").values():
            target = service["spec"]["selector"].get("app.kubernetes.io/name")
            assert {(target, port["targetPort"]) for port in service["spec"].get("ports", [])} <= ports


def test_only_the_control_plane_reaches_the_stores_and_only_agents_reach_agents() -> None:
    stores = named("overlays/small", "NetworkPolicy")["stores"]["spec"]
    assert stores["ingress"] == [
        {
            "from": [{"podSelector": {"matchLabels": {"paceline/role": "controlplane"}}}],
            "ports": [{"port": 5432}, {"port": 6379}],
        }
    ]
    assert named("overlays/small", "NetworkPolicy")["closed"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    agents = named("agents", "NetworkPolicy")["agents"]["spec"]
    assert agents["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"paceline/role": "agent"}}}]}]


def test_images_are_ours_or_those_of_the_stores() -> None:
    found = {image(container) for overlay in EVERY for container in containers(overlay)}
    assert found == {"paceline/controlplane", "paceline/agent", "paceline/training", "redis", "postgres"}


def test_what_the_comments_tell_people_to_type_is_there() -> None:
    text = "".join(path.read_text() for path in FOLDER.rglob("*.yaml"))
    assert set(re.findall(r"manage\.py,? (\w+)", text)) == {"access", "enroll", "health", "migrate"}


def test_a_pods_own_token_is_for_us_and_only_the_web_process_may_ask_about_it() -> None:
    (agent,) = pods("agents-by-account").values()
    (enrolment,) = [each for each in agent["volumes"] if each["name"] == "enrolment"]
    (source,) = enrolment["projected"]["sources"]
    assert source["serviceAccountToken"] == {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    assert agent["serviceAccountName"] == "agents"
    (binding,) = named("overlays/accounts", "ClusterRoleBinding").values()
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "web", "namespace": "paceline"}]
    accounts = {name: pod.get("serviceAccountName") for name, pod in pods("overlays/accounts").items()}
    assert {name for name, account in accounts.items() if account} == {"web"}
    (settings,) = named("overlays/accounts", "ConfigMap").values()
    (listed,) = parse_accounts(settings["data"]["PACELINE_KUBERNETES_ACCOUNTS"])
    assert str(listed) == "paceline/agents"


def test_agents_by_account_are_the_agents_but_for_their_account() -> None:
    (ours,), (theirs,) = pods("agents").values(), pods("agents-by-account").values()
    differing = {"volumes", "serviceAccountName"}
    assert {key: value for key, value in ours.items() if key not in differing} == {
        key: value for key, value in theirs.items() if key not in differing
    }


def test_agents_with_gpus_ask_for_one_each_and_do_not_compute_on_the_cpu_instead() -> None:
    (pod,) = pods("overlays/agents-with-gpus").values()
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "1"}
    assert " --device cuda" in " ".join(container["args"])


@pytest.mark.parametrize("folder", ["agents", "agents-by-account"])
def test_components_of_agents_go_into_either_of_their_kustomizations(folder: str, tmp_path: Path) -> None:
    copied = shutil.copytree(FOLDER, tmp_path / "kubernetes")
    with (copied / folder / "kustomization.yaml").open("a") as file:
        file.write("components: [../components/checkpoints, ../components/gpus]\n")
    (theirs,) = pods("overlays/agents-with-gpus").values()
    found = render(copied / folder)
    (ours,) = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "StatefulSet"]
    assert ours["containers"] == theirs["containers"]
    assert [each["kind"] for each in found].count("PersistentVolumeClaim") == 1


def test_the_page_builds_the_image_of_agents_with_the_argument_that_it_has() -> None:
    page = (ROOT / "docs" / "clusters.md").read_text()
    (given,) = set(re.findall(r"--build-arg (\w+)=", page))
    assert any(step.word == "ARG" and step.rest.startswith(f"{given}=") for step in stages()["agent"])
