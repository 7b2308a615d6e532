"""What an agent finds out about its machine."""

import platform
from importlib.metadata import version
from pathlib import Path

from workers.environment import environment


def test_versions_and_models_are_found_without_torch(tmp_path: Path) -> None:
    cpus, gpus = tmp_path / "cpuinfo", tmp_path / "gpus"
    cpus.write_text("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n\nprocessor\t: 1\nmodel name\t: Other\n")
    for place in ("0000:01", "0000:02"):
        (gpus / place).mkdir(parents=True)
        (gpus / place / "information").write_text("Model: \t Big GPU\nIRQ: 7\n")
    found = environment("auto", cpus=cpus, gpus=gpus)
    assert (found.python, found.torch) == (platform.python_version(), version("torch"))
    assert (found.cpu, found.device) == ("Fast CPU @ 3 GHz", "auto (Big GPU, Big GPU)")
    assert environment("cpu", cpus=cpus, gpus=gpus).device == "cpu"


def test_a_machine_that_reports_nothing_is_no_error(tmp_path: Path) -> None:
    found = environment("auto", cpus=tmp_path / "none", gpus=tmp_path / "none")
    assert (found.cpu, found.device) == (platform.processor(), "auto")
