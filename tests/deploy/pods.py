"""Pods of agents beside a control plane of Kubernetes' manifests, and a job for them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.deploy import kubernetes
from tests.deploy.engine import Engine
from tests.support.waiting import eventually

AGENTS = ("agents-0", "agents-1")
JOB = {
    "name": "pods",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": 16,
    "labels": {"pool": "default"},
    "stop": {"iterations": 10},
}


@contextmanager
def admitted(engine: Engine, url: str, *, verify: Any = True) -> Iterator[httpx.Client]:
    """An administrator's client of the control plane at ``url``."""
    access = json.loads(
        engine.execute("web", "python", "manage.py", "access", "me", "--role", "admin", "--token", "--json")
    )
    headers = {"Authorization": f"Bearer {access['token']}"}
    with httpx.Client(base_url=url, headers=headers, verify=verify, trust_env=False, timeout=60.0) as client:
        yield client


def invite(engine: Engine, *, pool: str = "default") -> str:
    """An enrolment token for as many machines as ``AGENTS``."""
    made = json.loads(
        engine.execute(
            *("web", "python", "manage.py", "enroll", "--uses", str(len(AGENTS)), "--expires", "1h"),
            *("--label", f"pool={pool}", "--remove-after", "1h", "--json"),
        )
    )
    return str(made["token"])


def start_agent(engine: Engine, overlay: str, name: str, token: str) -> None:
    """The pod of this name of a StatefulSet of agents; ``token`` is what it finds in its volume."""
    (pod,) = kubernetes.pods(overlay).values()
    service = kubernetes.service(overlay, pod)
    words = {"$(POD_NAME)": name, "$(POD_IP)": "127.0.0.1", "cuda": "cpu"}
    service["command"] = [words.get(word, word) for word in service["command"]]
    service["volumes"] = [re.sub(r"^(data|enrolment):", rf"{name}-\1:", volume) for volume in service["volumes"]]
    engine.services[name] = service
    file = engine.folder / "volumes" / f"{name}-enrolment" / "token"
    file.parent.mkdir(exist_ok=True)
    file.write_text(token)
    engine.run(name)


def trained(client: httpx.Client, **more: Any) -> dict[str, Any]:
    """``JOB`` with ``more`` in its spec, submitted and over."""
    job = client.post("/api/v1/jobs", json=JOB | more).raise_for_status().json()["id"]

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/api/v1/jobs/{job}").raise_for_status().json()
        return found if found["is_over"] else None

    done = eventually(look, what="the job's end", seconds=120, every=0.5)
    assert done is not None
    return done
