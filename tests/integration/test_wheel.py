"""The wheel: what it brings into an empty environment, what it leaves out, and that it is whole."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from controlplane.protocol import RELEASE
from controlplane.runtime.embedded.joining import let_in
from paceline import Client
from tests.architecture.sources import ROOT
from tests.support.commands import running

pytestmark = pytest.mark.integration

LIMIT_S = 180
IMPORT_S = 0.3
NO_INDEX = ("No matching distribution found", "Failed to establish a new connection", "Network is unreachable")
HEAVY = ("asyncio", "celery", "django", "httpx", "numpy", "redis", "ssl", "torch", "websockets")


def pip(python: Path | str, *arguments: str | Path) -> None:
    """Run pip; without an index there is nothing to test."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd=ROOT)
    if done.returncode and any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip(f"pip finds no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def said(folder: Path, *command: str | Path, code: int = 0) -> str:
    """What a command prints that is run outside of the checkout."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=60, cwd=folder, env={"PATH": ""}
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    assert built.name == f"paceline-{RELEASE}-py3-none-any.whl"
    return built


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    pip(folder / "bin" / "python", "install", "--quiet", wheel)
    return folder / "bin"


def test_it_installs_without_a_control_plane_and_imports_at_once(empty: Path, tmp_path: Path) -> None:
    listed = "from importlib.metadata import distributions as all; print(*sorted({d.name.lower() for d in all()}))"
    there = set(said(tmp_path, empty / "python", "-c", listed).split())
    assert {"paceline", "httpx", "msgspec", "websockets"} <= there
    assert there.isdisjoint({"django", "celery", "redis", "torch", "numpy", "typer", "rich", "pyyaml"})
    program = (
        "import sys, time; begun_s = time.process_time(); import paceline; took_s = time.process_time() - begun_s;"
        f" print(paceline.__version__, *({{*{HEAVY!r}}} & sys.modules.keys()), took_s < {IMPORT_S})"
    )
    assert said(tmp_path, empty / "python", "-c", program) == f"{RELEASE} True\n"


def other_python(version: str) -> str:
    """An interpreter of that version, on the path or among pyenv's."""
    found = [str(each) for each in (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")]
    if not found and (there := shutil.which(f"python{version}")) is not None:
        found = [there]
    if not found:
        pytest.skip(f"there is no Python {version} here")
    return found[0]


@pytest.mark.parametrize("version", [pytest.param("3.12", marks=pytest.mark.thorough), "3.13"])
def test_it_installs_on_later_versions_of_python_and_attaches(wheel: Path, tmp_path: Path, version: str) -> None:
    there = tmp_path / "environment"
    subprocess.run([other_python(version), "-m", "venv", str(there)], check=True, timeout=LIMIT_S)
    pip(there / "bin" / "python", "install", "--quiet", wheel)
    program = f"import sys; assert sys.version.startswith('{version}.'); import paceline; paceline.attach()"
    assert "PACELINE_URL is not set" in said(tmp_path, there / "bin" / "python", "-c", program)
    assert said(tmp_path, there / "bin" / "paceline", "--version") == f"paceline {RELEASE}\n"


def test_every_exported_name_can_be_had_in_it(empty: Path, tmp_path: Path) -> None:
    program = "import paceline; print([name for name in paceline.__all__ if not getattr(paceline, name)])"
    assert said(tmp_path, empty / "python", "-c", program) == "[]\n"


def test_its_command_reports_what_it_does_and_what_is_not_installed(empty: Path, tmp_path: Path) -> None:
    assert "usage: paceline" in said(tmp_path, empty / "paceline", "--help")
    assert said(tmp_path, empty / "paceline", "--version") == f"paceline {RELEASE}\n"
    refusal = said(tmp_path, empty / "paceline", "up", "--port", "0", code=2)
    assert refusal == (
        f"paceline up: found no paceline[server] in this environment ({empty.parent}), which this command needs; "
        "install it: pip install 'paceline[server]'\n"
    )
    assert "pip install 'paceline[server,agent]'" in said(tmp_path, empty / "paceline", "demo", code=2)
    assert "pip install 'paceline[agent]'" in said(tmp_path, empty / "paceline", "join", "http://x", code=2)


def test_the_control_plane_in_it_is_whole(wheel: Path, tmp_path: Path) -> None:
    """With the packages of this environment: templates, static files, scripts and migrations come from the wheel."""
    home = tmp_path / "installed"
    pip(sys.executable, "install", "--quiet", "--no-deps", "--target", home, wheel)
    with running(
        tmp_path,
        *("up", "--port", "0"),
        program=[sys.executable, "-m", "paceline"],
        within=tmp_path,
        environment={"PYTHONPATH": str(home)},
    ) as command:
        command.await_word(
            f"To sign in, run in another terminal: PACELINE_DATA_DIR={tmp_path / 'var'} paceline access NAME"
        )
        url = command.said().partition("Paceline runs at ")[2].split()[0]
        page = httpx.get(f"{url}/login/")
        assert page.status_code == 200
        assert str(home) in command.family()[0].environ()["PYTHONPATH"]
        for path in (
            "paceline/css/base.css",
            "paceline/js/live.js",
            "vendor/plotly.min.js",
            "vendor/plotly-cartesian.min.js",
        ):
            assert httpx.get(f"{url}/static/{path}").status_code == 200
        assert command.interrupt() == 0


def brought_by(*names: str) -> set[str]:
    """Entries of this environment's library that came with these distributions, or with what they need."""
    left, seen, found = list(names), set[str](), set[str]()
    while left:
        name = canonicalize_name(left.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            there = distribution(name)
        except PackageNotFoundError:
            continue
        found |= {file.parts[0] for file in there.files or [] if file.parts[0] != ".."}
        left += [Requirement(line).name for line in there.requires or [] if "extra ==" not in line]
    return found


def test_a_script_trains_in_it_as_a_job_of_a_control_plane_elsewhere(empty: Path, tmp_path: Path) -> None:
    library = Path(sysconfig.get_path("purelib"))
    own = tmp_path / "own"
    own.mkdir()
    for name in brought_by("torch", "scikit-learn"):  # linked from here: torch takes minutes to install
        (own / name).symlink_to(library / name)
    script = Path(said(tmp_path, empty / "python", "-c", "import paceline; print(paceline.__file__)").strip())
    train = script.parent / "examples" / "train_paceline.py"
    with running(tmp_path, "up", "--port", "0") as command:
        command.await_word("To sign in")
        url = command.said().partition("Paceline runs at ")[2].split()[0]
        access = let_in(
            "tester", role="operator", environment={**os.environ, "PACELINE_DATA_DIR": str(tmp_path / "var")}
        )
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(own),
            "PACELINE_URL": url,
            "PACELINE_API_TOKEN": access.token,
            "OMP_NUM_THREADS": "1",
        }
        launch = [str(empty / "python"), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(
            [str(empty / "paceline"), "run", "--name", "digits", "--", *launch, str(train), "--epochs", "2"],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            cwd=tmp_path,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert "epoch 2: loss" in done.stdout
        with Client(url, access.token) as client:
            (job,) = client.jobs()
            assert (job.name, job.state, job.workers) == ("digits", "succeeded", 2), job.reason
            assert job.samples == 2 * 1437
        assert command.interrupt() == 0
