"""Where Paceline's packages are installed, and the environment in which other processes can import them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder of Paceline's packages: site-packages, or a checkout."""


def is_checkout() -> bool:
    """Whether this is a checkout of the project rather than an installed wheel."""
    return (HOME / "manage.py").is_file()


MANAGE = "python manage.py" if is_checkout() else "paceline"
"""The prefix of the control plane's commands here, such as ``up``, ``access``, ``enroll``, ``whatif``, ``simulate``."""


def missing_package(error: ModuleNotFoundError) -> str:
    """The cure, if a command runs in an interpreter without the requirements, such as the system's."""
    found = f"{sys.executable} has no module {error.name!r}"
    if not is_checkout():
        return f"{found}: install it again with: pip install 'paceline[server]'"
    python = HOME / ".venv" / "bin" / "python"
    if not python.exists():
        return f"{found}: run make up or make demo, which install the requirements in {python.parents[1]}"
    return f"{found}: use {python}, or activate its environment: source {python.with_name('activate')}"


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with Paceline's folder appended to ``PYTHONPATH``."""
    known = dict(variables)
    if is_checkout():
        known["PYTHONPATH"] = os.pathsep.join(filter(None, [known.get("PYTHONPATH"), str(HOME)]))
    return known


def with_data_folder(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with the data folder of this user's control plane if none is set.

    A checkout keeps its data in ``var``; an installed package uses the user's data folder.
    """
    if variables.get("PACELINE_DATA_DIR"):
        return dict(variables)
    base = Path(variables.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return {**variables, "PACELINE_DATA_DIR": str(HOME / "var" if is_checkout() else base / "paceline")}
