"""Backup and restore, upgrade and downgrade, as docs/operating.md has them, while a job trains."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from benchmarks.database.postgres import postgres_folder
from controlplane.protocol import RELEASE
from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.supervisor import Supervisor
from controlplane.telemetry.batches import decoded_batch
from paceline import Client
from tests.support.commands import Running, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

ITERATIONS = 250
SPEC = {
    "name": "digits",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": 16,
    "stop": {"iterations": ITERATIONS},
    "seed": 7,
}
DATABASE = "paceline.sqlite3"
SERIES, PATCH = RELEASE.rsplit(".", 1)
NEXT = f"{SERIES}.{int(PATCH) + 1}"
MIGRATION = """from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "{last}")]
    operations = [migrations.AddField("job", "shelf", models.CharField(max_length=40, null=True))]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A machine that trains a job for a control plane that comes and goes."""

    plane: Path
    port: int
    client: Client
    job: int
    url: str
    """Of its PostgreSQL; empty: SQLite in its data folder."""

    @property
    def data(self) -> Path:
        return self.plane / "var"

    def run(self, *arguments: str, within: Path = CHECKOUT, url: str | None = None) -> AbstractContextManager[Running]:
        environment = {"DATABASE_URL": self.url if url is None else url}
        return running(self.plane, *arguments, environment=environment, within=within)

    def await_iteration(self, number: int) -> None:
        eventually(
            lambda: self.client.job(self.job).iteration >= number, what=f"iteration {number}", seconds=90, every=0.1
        )

    def await_end(self) -> None:
        eventually(lambda: self.client.job(self.job).is_over, what="the job's end", seconds=120, every=0.2)
        done = self.client.job(self.job)
        assert (done.state, done.iteration) == ("succeeded", ITERATIONS), done.reason

    def reported(self, url: str = "") -> dict[int, set[int]]:
        """The iterations of which a report is in the database, by rank."""
        opened = psycopg.connect(url) if url else sqlite3.connect(self.data / DATABASE)
        with closing(opened) as database:
            found: dict[int, set[int]] = {}
            for (data,) in database.execute(f"SELECT data FROM telemetry_reportbatch WHERE job_id = {self.job}"):
                columns = decoded_batch(bytes(data), ()).columns
                for rank, iteration in zip(columns["rank"].tolist(), columns["iteration"].tolist(), strict=True):
                    found.setdefault(rank, set()).add(iteration)
            return found


@contextmanager
def training(tmp_path: Path, url: str = "") -> Iterator[tuple[Place, ExitStack]]:
    """A job that trains, and the stack that ends its control plane."""
    plane, port = tmp_path / "plane", free_port()
    plane.mkdir()
    address = f"http://127.0.0.1:{port}"
    with ExitStack() as stack, ExitStack() as first:
        command = first.enter_context(running(plane, "up", "--port", str(port), environment={"DATABASE_URL": url}))
        command.await_word("To sign in")
        settings = {**os.environ, "PACELINE_DATA_DIR": str(plane / "var"), "DATABASE_URL": url}
        access = let_in("tester", role="admin", environment=settings)
        client = stack.enter_context(Client(address, access.token))
        supervisor = stack.enter_context(Supervisor(Interruption()))
        start = {"name": "machines", "folder": tmp_path / "agent", "log": tmp_path / "agent.log"}
        supervisor.add(start_agent(address, client.invite().token, speeds=[200.0] * 2, server_slots=1, **start))
        place = Place(plane=plane, port=port, client=client, job=client.submit(SPEC).id, url=url)
        place.await_iteration(40)
        first.callback(command.assert_gone, port)
        first.callback(command.interrupt, signal.SIGKILL)
        yield place, first


@pytest.mark.timeout(420)
@pytest.mark.parametrize("on_postgres", [False, True], ids=["sqlite", "postgres"])
def test_a_job_continues_from_a_dump_that_is_older_than_its_workers(
    on_postgres: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = empty_database(request.getfixturevalue("postgres_url")) if on_postgres else ""
    with training(tmp_path, url) as (place, first):
        kept = tmp_path / "kept"
        kept.mkdir()
        if on_postgres:
            pg("pg_dump", "--format=custom", f"--file={kept / 'paceline.dump'}", url)
        else:
            with closing(sqlite3.connect(place.data / DATABASE)) as a, closing(sqlite3.connect(kept / DATABASE)) as b:
                a.backup(b)
        shutil.copy(place.data / "secret_key", kept)
        place.await_iteration(120)
        first.close()
        shutil.rmtree(place.data)
        shutil.copytree(kept, place.data)
        restored = empty_database(url) if on_postgres else ""
        if on_postgres:
            pg("pg_restore", "--clean", "--if-exists", f"--dbname={restored}", str(kept / "paceline.dump"))
        with place.run("up", "--port", str(place.port), url=restored) as command:
            command.await_word("To sign in")
            place.await_end()
            for iterations in place.reported(restored).values():
                missing = sorted(set(range(ITERATIONS)) - iterations)
                assert missing == list(range(missing[0], missing[-1] + 1)), "one gap: from the dump to the loss"
                assert missing[0] >= 40


def empty_database(url: str) -> str:
    """A new database in the same cluster."""
    name = f"backup_{os.urandom(4).hex()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.rpartition("/")[0] + f"/{name}"


def pg(program: str, *arguments: str) -> None:
    folder = postgres_folder()
    assert folder is not None
    subprocess.run([str(folder / program), *arguments], check=True, timeout=120)


@pytest.mark.timeout(420)
def test_workers_continue_through_an_upgrade_and_the_way_back_is_refused(tmp_path: Path) -> None:
    newer = copied(tmp_path / "newer", NEXT)
    other = copied(tmp_path / "other", f"{SERIES}1.0")
    migrations = newer / "controlplane" / "jobs" / "migrations"
    last = max(path.stem for path in migrations.glob("0*.py"))
    (migrations / "9999_shelf.py").write_text(MIGRATION.format(last=last))
    with training(tmp_path) as (place, first):
        place.await_iteration(60)
        place.client.pause(place.job)  # however long the checks take, it does not end meanwhile
        code, said = manage(place, other, "upgrade", "--check")
        assert code == 1
        assert f"not compatible with {SERIES}1.0: machines ({RELEASE})" in said
        code, said = manage(place, newer, "upgrade", "--check")
        assert (code, said) == (
            0,
            f"To release {NEXT}. Migrations to apply: jobs.9999_shelf. Live jobs that continue: 1.\n",
        )
        reached = place.client.resume(place.job).iteration
        place.await_iteration(reached + 5)
        first.close()
        assert manage(place, newer, "upgrade")[0] == 0
        with place.run("up", "--port", str(place.port), within=newer) as command:
            command.await_word("To sign in")
            place.await_end()
            reports = place.reported()
            command.interrupt()
        assert reports == {rank: set(range(ITERATIONS)) for rank in range(2)}
        with place.run("up", "--port", str(place.port)) as command:
            assert command.end(seconds=60) == 1
            assert (
                f"The database belongs to a newer release than {RELEASE}, which does not have jobs.9999_shelf:"
                " install that"
                " release, or restore the dump from before the upgrade. Nothing was changed." in command.said()
            )


def copied(folder: Path, release: str) -> Path:
    """The checkout as another release."""
    folder.mkdir()
    for name in ("controlplane", "workers", "paceline", "frontend"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(CHECKOUT / "manage.py", folder)
    protocol = folder / "controlplane" / "protocol" / "__init__.py"
    protocol.write_text(protocol.read_text().replace(f'RELEASE = "{RELEASE}"', f'RELEASE = "{release}"'))
    return folder


def manage(place: Place, release: Path, *arguments: str) -> tuple[int, str]:
    """What a release's ``manage.py`` says: exit code and output."""
    settings = {
        **os.environ,
        "PACELINE_DATA_DIR": str(place.data),
        "REDIS_URL": "",
        "DATABASE_URL": "",
        "PYTHONPATH": str(release),
    }
    command = [sys.executable, "-m", "controlplane.manage", *arguments]
    run = subprocess.run(command, cwd=release, env=settings, capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, run.stdout + run.stderr
