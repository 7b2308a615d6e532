"""Renders deploy/kubernetes as ``kubectl apply -k`` does, and says what runs there in docker-compose.yml's terms."""

import re
import shutil
import subprocess
from functools import cache
from typing import Any

import yaml

from tests.deploy.kustomize import render
from tests.deploy.reading import ROOT, entrypoint

FOLDER = ROOT / "deploy" / "kubernetes"
INSTALL_KUBECTL = "no kubectl 1.27 or newer here (Debian 12 has 1.20): its kustomize is not held against ours"
WORKLOADS = ("Deployment", "StatefulSet", "Job")
STAGES = {f"paceline/{stage}": stage for stage in ("controlplane", "agent", "training")}


@cache
def kubectl() -> str | None:
    """The command, if it is here and has a kustomize that knows components."""
    found = shutil.which("kubectl")
    if found is None:
        return None
    said = subprocess.run([found, "version", "--client"], capture_output=True, text=True, timeout=60, check=False)
    return found if re.search(r"Kustomize Version: v[5-9]", said.stdout) else None


@cache
def rendered(overlay: str) -> list[dict[str, Any]]:
    """Every object of a folder with a kustomization; by kubectl where there is one that can."""
    return rendered_by_kubectl(overlay) if kubectl() is not None else render(FOLDER / overlay)


def rendered_by_kubectl(overlay: str) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would apply."""
    command = [kubectl() or "kubectl", "kustomize", str(FOLDER / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def named(overlay: str, kind: str) -> dict[str, dict[str, Any]]:
    """Objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in rendered(overlay) if each["kind"] == kind}


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """The pod of each workload, by name."""
    return {name: each["spec"]["template"]["spec"] for kind in WORKLOADS for name, each in named(overlay, kind).items()}


def containers(overlay: str) -> list[dict[str, Any]]:
    """All containers, also those that run before others."""
    return [each for pod in pods(overlay).values() for each in [*pod.get("initContainers", []), *pod["containers"]]]


def image(container: dict[str, Any]) -> str:
    """Its image without the tag."""
    return str(container["image"]).partition(":")[0]


def services(overlay: str) -> dict[str, dict[str, Any]]:
    """The workloads as services of a compose file."""
    found = {name: service(overlay, pod) for name, pod in pods(overlay).items()}
    for name, pod in pods(overlay).items():
        needed = {"postgres": "service_healthy"} if name == "migrate" and "postgres" in found else {}
        if pod.get("initContainers"):
            needed = {"migrate": "service_completed_successfully"} | (
                {"redis": "service_healthy"} if "redis" in found else {}
            )
        found[name]["depends_on"] = {other: {"condition": how} for other, how in needed.items()}
    return found


def service(overlay: str, pod: dict[str, Any]) -> dict[str, Any]:
    """One pod's container as a service of a compose file."""
    (container,) = pod["containers"]
    stage = STAGES.get(image(container))
    settings = {name.rsplit("-", 1)[0]: each["data"] for name, each in named(overlay, "ConfigMap").items()}
    sources = container.get("envFrom", [])
    environment = {
        key: value
        for each in sources
        if "configMapRef" in each
        for key, value in settings[each["configMapRef"]["name"].rsplit("-", 1)[0]].items()
    }
    environment |= {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
    entry = container.get("command") or (entrypoint(stage) if stage else [])
    known = entrypoint(stage) if stage else []
    command = [*entry, *container.get("args", [])]
    made: dict[str, Any] = {
        "image": container["image"],
        "command": command[len(known) :] if known and command[: len(known)] == known else command,
        "environment": environment,
        "env_file": [f"{each['secretRef']['name']}.env" for each in sources if "secretRef" in each],
        "volumes": [
            f"{each['name']}:{each['mountPath']}"
            for each in container["volumeMounts"]
            if each["name"] not in {"tmp", "run"}
        ],
    }
    if stage:
        made["build"] = {"target": stage}
    if probe := container.get("readinessProbe") or container.get("startupProbe"):
        made["healthcheck"] = {"test": ["CMD", *probe_command(container, probe)]}
    return made


def probe_command(container: dict[str, Any], probe: dict[str, Any]) -> list[str]:
    """What the kubelet does, as a command."""
    if "exec" in probe:
        return list(probe["exec"]["command"])
    asked = probe["httpGet"]
    port = next(each["containerPort"] for each in container["ports"] if each["name"] == asked["port"])
    headers = {each["name"]: each["value"] for each in asked.get("httpHeaders", [])}
    url = f"http://127.0.0.1:{port}{asked['path']}"
    program = f"from urllib.request import Request, urlopen; urlopen(Request({url!r}, headers={headers!r}), timeout=5)"
    return ["python", "-c", program]
