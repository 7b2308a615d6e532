"""Slots and their devices, on machines that only look as if they had GPUs."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from controlplane.protocol import keys
from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.orders import ProcessOrder, Role
from tests.support.gpus import needs_two_gpus
from tests.workers.driver import job_spec
from workers import cli, processes
from workers.agent import Offer
from workers.cli import Launched
from workers.devices import VISIBLE, Gpus, claim, devices_by_slot, devices_of
from workers.machines import UsageError
from workers.setup import Setup
from workers.workloads.local import pick_device

FOUR = Gpus(("0", "1", "2", "3"))
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8"}


def driver(folder: Path, count: int) -> Path:
    """What the driver of so many GPUs lists."""
    for number in range(count):
        (folder / f"0000:0{number}:00.0").mkdir()
        (folder / f"0000:0{number}:00.0" / "information").write_text("Model: 	 NVIDIA A100\n")
    return folder


@pytest.mark.parametrize(
    ("environment", "count", "names"),
    [
        ({}, 2, ("0", "1")),
        ({}, 0, None),
        ({VISIBLE: "3,1"}, 4, ("3", "1")),
        ({VISIBLE: "MIG-aa, MIG-bb"}, 1, ("MIG-aa", "MIG-bb")),
        ({VISIBLE: ""}, 2, ()),
        ({VISIBLE: "-1"}, 2, ()),
    ],
)
def test_gpus_are_those_that_the_environment_leaves_or_else_the_drivers(
    tmp_path: Path, environment: dict[str, str], count: int, names: tuple[str, ...] | None
) -> None:
    assert Gpus.found(environment, driver(tmp_path, count)).names == names


@pytest.mark.parametrize(
    ("asked", "gpus", "devices"),
    [
        ("auto", FOUR, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("cuda", Gpus(("7",)), ["cuda:0"]),
        ("auto", Gpus(()), ["auto"]),
        ("auto", Gpus(None), ["auto"]),
        ("cpu", FOUR, ["cpu"]),
        ("cuda:1, cuda:0", FOUR, ["cuda:1", "cuda:0"]),
        ("cuda:0,cuda:0", FOUR, ["cuda:0", "cuda:0"]),
        ("GPU-8932f937,MIG-GPU-8932f937/1/0", FOUR, ["GPU-8932f937", "MIG-GPU-8932f937/1/0"]),
        ("cuda:9", Gpus(None), ["cuda:9"]),
    ],
)
def test_devices_are_all_gpus_or_those_that_are_named(asked: str, gpus: Gpus, devices: list[str]) -> None:
    assert devices_of(asked, gpus) == devices


@pytest.mark.parametrize(
    ("asked", "gpus", "sentence"),
    [
        ("gpu", FOUR, "--device 'gpu': found 'gpu', expected auto, cpu, cuda, or a list of cuda:0, GPU-UUID"),
        ("cuda:0,", FOUR, "--device 'cuda:0,': found '', expected"),
        ("cuda:0,auto", FOUR, "--device 'cuda:0,auto': found 'auto', expected"),
        ("cuda:0,cuda:4", FOUR, "found cuda:4, expected one that is here: cuda:0 to cuda:3"),
        ("cuda:0", Gpus(()), "found cuda:0, expected one that is here: no GPU"),
    ],
)
def test_devices_that_are_not_there_are_refused_with_those_that_are(asked: str, gpus: Gpus, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        devices_of(asked, gpus)
    assert sentence in str(refused.value)


def test_each_slot_has_a_device_of_its_own_as_far_as_they_go() -> None:
    assert devices_by_slot(["cuda:0", "cuda:1"], 2) == ["cuda:0", "cuda:1"]
    assert devices_by_slot(["cuda:0", "cuda:1"], 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert devices_by_slot(["cuda:0", "cuda:1"], 1) == ["cuda:0"]


@pytest.mark.parametrize("slots", [1, 2])
def test_ranks_of_one_machine_under_a_launcher_share_no_device(slots: int) -> None:
    devices = devices_of("auto", FOUR)
    taken = [device for rank in range(4 // slots) for device in devices_by_slot(devices, slots, rank)]
    assert sorted(taken) == devices


@pytest.mark.parametrize(
    ("environment", "local_rank"),
    [
        (TORCHRUN | {"LOCAL_RANK": "1"}, 1),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "3"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, 0),
        ({"JOB_COMPLETION_INDEX": "2"}, None),
        (TORCHRUN | {"LOCAL_RANK": "one"}, None),
        ({"LOCAL_RANK": "1"}, None),
    ],
)
def test_the_launcher_reports_which_rank_of_a_machine_one_is(
    environment: dict[str, str], local_rank: int | None
) -> None:
    assert Launched.by(environment).local_rank == local_rank


@pytest.mark.parametrize(
    ("device", "before", "visible", "name"),
    [
        ("cuda:1", None, "1", "cuda"),
        ("cuda:1", "3,2", "2", "cuda"),
        ("MIG-aa", None, "MIG-aa", "cuda"),
        ("cpu", "3,2", "3,2", "cpu"),
        ("auto", None, None, "auto"),
    ],
)
def test_a_process_sees_its_own_device_alone(
    tmp_path: Path, device: str, before: str | None, visible: str | None, name: str
) -> None:
    environment = {} if before is None else {VISIBLE: before}
    assert claim(device, environment, driver(tmp_path, 4)) == name
    assert environment.get(VISIBLE) == visible


def order(role: Role, slot: int) -> ProcessOrder:
    key = keys.process_key(b"key", role, slot, "x").hex()
    return ProcessOrder(job=1, role=role, index=slot, instance="x", slot=slot, key=key, spec=job_spec(workers=2))


def test_workers_get_the_device_of_their_slot_and_servers_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str | None]] = []

    def run_worker(order: ProcessOrder, plane: ControlPlane, setup: Setup, device: str) -> int:
        found.append((device, os.environ.get(VISIBLE)))
        return 0

    def run_server(order: ProcessOrder, plane: ControlPlane, setup: Setup) -> int:
        found.append(("server", os.environ.get(VISIBLE)))
        return 0

    monkeypatch.setattr(processes, "run_worker", run_worker)
    monkeypatch.setattr(processes, "run_server", run_server)
    setup = Setup(url="http://127.0.0.1:1", devices=("cuda:0", "cuda:1"), threads=torch.get_num_threads())
    roles: list[tuple[Role, int]] = [("worker", 1), ("worker", 0), ("server", 1)]
    for role, slot in roles:
        monkeypatch.setenv(VISIBLE, "6,7")
        processes.run_process(order(role, slot), setup)
    assert found == [("cuda", "7"), ("cuda", "6"), ("server", "6,7")]


def test_a_device_that_torch_does_not_find_is_refused_with_the_cure() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"device 'cuda' cannot be used: .*; try --device auto or --device cpu"):
        pick_device("cuda")


@needs_two_gpus
def test_two_processes_compute_on_two_gpus(tmp_path: Path) -> None:
    import subprocess
    import sys

    said: list[Any] = []
    for device in devices_of("auto", Gpus.found(os.environ))[:2]:
        code = (
            "import os; from workers.devices import claim; "
            f"name = claim({device!r}, os.environ); "
            "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_properties(name).uuid)"
        )
        said.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert len(set(said)) == 2
    assert all(line.startswith("1 ") for line in said)


@pytest.mark.parametrize(
    ("options", "environment", "devices"),
    [
        ((), {}, ("cuda:0", "cuda:1", "cuda:2")),
        (("--device", "cuda:2,cuda:0"), {}, ("cuda:2", "cuda:0")),
        (("--device", "cpu"), {}, ("cpu",)),
        (("--slots", "4"), {}, ("cuda:0", "cuda:1", "cuda:2", "cuda:0")),
        (("--emulate", "1000,250"), {}, ("cuda:0", "cuda:1")),
        ((), TORCHRUN | {"LOCAL_RANK": "1"}, ("cuda:1",)),
        (("--device", "cuda:2,cuda:0"), TORCHRUN | {"LOCAL_RANK": "1"}, ("cuda:0",)),
    ],
)
def test_a_machine_offers_a_slot_for_each_device(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], environment: dict[str, str], devices: tuple[str, ...]
) -> None:
    offers: list[Offer] = []
    monkeypatch.setattr(cli, "serve", lambda plane, offer, *_, **__: offers.append(offer))
    done = CliRunner().invoke(
        cli.app, ["join", "http://127.0.0.1:1", "token", *options], env={VISIBLE: "0,1,2"} | environment
    )
    assert done.exit_code == 0, done.output
    (offer,) = offers
    assert (offer.setup.devices, len(offer.slots)) == (devices, len(devices))
