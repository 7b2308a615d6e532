"""A command that runs by the wrong interpreter names the right one."""

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cli import places

MISSING = ModuleNotFoundError("No module named 'django'", name="django")
WITHOUT_PACKAGES = "-I", "-S"
"""The interpreter alone, without site-packages."""


@pytest.mark.parametrize(
    "statement", ["from controlplane.manage import main; main()", "import runpy; runpy.run_module('paceline')"]
)
def test_an_interpreter_without_the_requirements_is_refused_in_one_sentence(statement: str) -> None:
    program = f"import sys; sys.path.insert(0, {str(places.HOME)!r}); {statement}"
    done = subprocess.run(
        [sys.executable, *WITHOUT_PACKAGES, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{sys.executable} has no module '")
    assert done.stderr.count("\n") == 1


def test_in_a_checkout_the_cure_is_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "HOME", tmp_path)
    (tmp_path / "manage.py").touch()
    assert places.missing_package(MISSING).endswith(f"which install the requirements in {tmp_path / '.venv'}")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert f": use {python}, or activate its environment" in places.missing_package(MISSING)


def test_installed_the_cure_is_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "HOME", tmp_path)
    assert places.missing_package(MISSING).endswith("install it again with: pip install 'paceline[server]'")
