"""Pods of attached training as local processes: what kubelet and controllers put into each one's environment."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from controlplane.runtime.embedded.ground import free_port
from tests.deploy.images import bare_environment, unpack
from tests.deploy.kubernetes import named
from tests.deploy.reading import environment_of
from tests.support.stack import Stack

WORLD = 4

INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""What the Job controller calls a pod's index."""

EMULATE = ("examples/emulate.py", "1000,1000,500,250")
"""Makes each pod a machine of its own speed; stands before the script."""


def pod_of(overlay: str) -> dict[str, Any]:
    """The pod of an Indexed Job or of a JobSet's only one."""
    if overlay == "jobset":
        (each,) = named("jobset", "JobSet")["training"]["spec"]["replicatedJobs"]
        job = each["template"]["spec"]
    else:
        job = named(overlay, "Job")["training"]["spec"]
    return dict(job["template"]["spec"])


def container_of(overlay: str) -> dict[str, Any]:
    """What runs the script; a TrainJob's trainer has a container's command and variables."""
    if overlay == "trainjob":
        return dict(named("trainjob", "TrainJob")["training"]["spec"]["trainer"])
    (container,) = pod_of(overlay)["containers"]
    return dict(container)


def environment(overlay: str, index: int, secrets: dict[str, str]) -> dict[str, str]:
    """The variables of the pod of that index."""
    container = container_of(overlay)
    found = environment_of("training") | {"JOB_COMPLETION_INDEX": str(index)}
    if container.get("envFrom"):
        assert container["envFrom"] == [{"secretRef": {"name": "training"}}]
        found |= secrets
    for variable in container["env"]:
        found[variable["name"]] = _value(variable, index, secrets, found)
    return found


def torch_runtime(index: int, nodes: int, port: int) -> dict[str, str]:
    """What Kubeflow's torch runtime sets for torchrun."""
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }


def _value(variable: dict[str, Any], index: int, secrets: dict[str, str], before: dict[str, str]) -> str:
    source = variable.get("valueFrom", {})
    if "fieldRef" in source:
        assert source["fieldRef"]["fieldPath"] == INDEX
        return str(index)
    if "secretKeyRef" in source:
        assert source["secretKeyRef"]["name"] == "training"
        return secrets[source["secretKeyRef"]["key"]]
    return re.sub(r"\$\((\w+)\)", lambda found: before[found[1]], variable["value"])


class Pods:
    """Four of them, and what each one printed."""

    def __init__(self, overlay: str, stack: Stack, folder: Path, *, epochs: int, batching: str) -> None:
        unpack("training", folder / "app")
        spec = {"name": overlay, "launch": "attached", "workers": WORLD, "batch_size": 64, "seed": 7}
        self.job = stack.ask("POST", "/api/v1/jobs", json=spec | {"synchronization": {"batching": {"name": batching}}})
        secrets = {
            "PACELINE_URL": stack.url,
            "PACELINE_JOB": str(self.job["id"]),
            "PACELINE_TOKEN": self.job["token"],
        }
        program, script, *rest = container_of(overlay)["command"]
        launcher = [sys.executable, *(["-m", "torch.distributed.run"] if program == "torchrun" else [])]
        command = [*launcher, *EMULATE, script, *rest, "--epochs", str(epochs)]
        port = free_port()
        self.outputs = [folder / f"pod-{index}.txt" for index in range(WORLD)]
        self.processes = []
        for index, output in enumerate(self.outputs):
            variables = environment(overlay, index, secrets) | {"PYTHONPATH": str(folder / "app")}
            if overlay == "trainjob":
                variables |= torch_runtime(index, WORLD, port)
            else:
                variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            with output.open("w") as file:
                surroundings = bare_environment() | variables | {"OMP_NUM_THREADS": "1"}
                self.processes.append(
                    subprocess.Popen(
                        command, cwd=folder / "app", env=surroundings, stdout=file, stderr=file, start_new_session=True
                    )
                )

    def wait(self) -> list[str]:
        """What each printed, once all have ended well."""
        statuses = [process.wait(150) for process in self.processes]
        texts = [output.read_text() for output in self.outputs]
        assert statuses == [0] * WORLD, "\n".join(texts)
        return texts

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
