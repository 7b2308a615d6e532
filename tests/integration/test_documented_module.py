"""The module of docs/workloads.md on a running control plane: what the job's page reports is what is delivered."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import yaml
from torch import nn

from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import start_service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.architecture.sources import ROOT
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TEXT = (ROOT / "docs" / "workloads.md").read_text()
SPEC = "    workload: {name: mine:classifier"
POINTS = 0.005
"""How far the delivered model's accuracy may be from the reported one."""

WORKERS, ITERATIONS = 3, 60
PLACES: dict[str, dict[str, Any]] = {
    "servers": {"servers": 2},
    "all-reduce": {"servers": 0, "communication": "all-reduce"},
}


def module_text() -> str:
    """The code of the documented factory."""
    before = TEXT.partition(SPEC)[0]
    return dedent("".join(before.rpartition("    import numpy as np\n")[1:]))


def spec_text() -> str:
    """The two lines of the spec that stand below it."""
    lines = TEXT.partition(SPEC)
    return dedent(lines[1] + lines[2].partition("\n\n")[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's module and data: five classes that overlap, so that no score is perfect."""
    here = tmp_path_factory.mktemp("mine")
    (here / "mine.py").write_text(module_text())
    rng = np.random.default_rng(1)
    classes = np.arange(3_000) % 5
    rows = 5.0 + 4.0 * np.eye(20)[classes] + 2.0 * rng.normal(size=(3_000, 20))
    rows = rows.astype(np.float32)
    held = slice(2_000, None)
    np.savez(here / "mine.npz", x=rows[:2_000], y=classes[:2_000], held_x=rows[held], held_y=classes[held])
    return here


@contextmanager
def machine(stack: Stack, folder: Path, name: str) -> Iterator[None]:
    """One of uneven speeds, whose owner lets jobs bring code."""
    token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json={"name": name, "labels": {"code": name}})["token"]
    command = [
        *(sys.executable, "-m", "workers", "join", stack.url, "-", "--name", name, "--host", "127.0.0.1"),
        *("--emulate", "4000,2000,1000", "--slots", str(WORKERS), "--server-slots", "2", "--allow-code"),
        *("--state-dir", str(folder / name)),
    ]
    environment = {"PYTHONPATH": f"{folder}:{ROOT}"}
    with Supervisor(Interruption()) as supervisor:
        log = folder / f"{name}.log"
        stdin = token.encode() + b"\n"
        supervisor.add(start_service(name, command, log=log, environment=environment, folder=ROOT, stdin=stdin))
        yield


def page_of(stack: Stack, job: int) -> str:
    """The job's page, as someone who signed in sees it."""
    with httpx.Client(base_url=stack.url, timeout=60.0, trust_env=False, follow_redirects=True) as browser:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/login/").text)
        assert token is not None
        form = {"username": stack.user, "password": stack.password, "csrfmiddlewaretoken": token[1]}
        assert browser.post("/login/", data=form, headers={"Referer": stack.url}).is_success
        reply = browser.get(f"/jobs/{job}/")
        assert reply.is_success
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", reply.text)).split())


def score(folder: Path, arrays: dict[str, np.ndarray[Any, Any]], *, strict: bool = True) -> float:
    """The accuracy, in ``eval()``, of the user's module with these arrays, as the document loads them."""
    names: dict[str, Any] = {}
    exec(module_text(), names)
    module: nn.Module = names["classifier"](folder / "mine.npz").build()
    module.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}, strict=strict)
    data = np.load(folder / "mine.npz")
    with torch.no_grad():
        found = module.eval()(torch.from_numpy(data["held_x"])).argmax(1).numpy()
    return float((found == data["held_y"]).mean())


@pytest.mark.parametrize("place", PLACES)
def test_the_downloaded_module_scores_in_eval_what_the_page_reported(stack: Stack, folder: Path, place: str) -> None:
    spec = yaml.safe_load(spec_text())
    spec["workload"]["options"]["path"] = str(folder / "mine.npz")
    name = f"mine-{place}"
    with machine(stack, folder, name):
        job = stack.submit(
            name=name,
            **spec,
            **PLACES[place],
            workers=WORKERS,
            batch_size=32,
            labels={"code": name},
            evaluate={"every": ITERATIONS},
            stop={"iterations": ITERATIONS},
            synchronization={"batching": {"name": "lb-bsp-cpu"}},
        )["id"]
        done = stack.await_job(job, "succeeded", seconds=150)
        model = eventually(
            lambda: (reply := stack.client.get(f"/api/v1/jobs/{job}/model")).is_success and reply.content,
            what="the model",
        )
    assert model
    arrays = dict(np.load(io.BytesIO(model), allow_pickle=False))
    delivered = score(folder, arrays)
    assert abs(delivered - done["accuracy"]) <= POINTS
    reported = re.search(r"Accuracy ([\d.]+) ?%", page_of(stack, job))
    assert reported is not None
    assert abs(delivered - float(reported[1]) / 100) <= POINTS
    assert int(arrays["1.num_batches_tracked"]) == ITERATIONS
    assert 0.4 < delivered < 0.98, "it has learnt, and its score can tell one model from another"
    buffers = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    bare = score(folder, {name: array for name, array in arrays.items() if name not in buffers}, strict=False)
    assert abs(bare - done["accuracy"]) > 10 * POINTS, "without its buffers it would have scored otherwise"
