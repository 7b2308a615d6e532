"""docker-compose.yml and Dockerfile: valid, safe, and made of things that exist."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from controlplane.runtime.embedded import control_plane
from deploy import make_env
from tests.deploy.compose_schema import COMPOSE
from tests.deploy.images import bare_environment, unpack
from tests.deploy.reading import ROOT, compose, copied, entrypoint, mounts, parse_env, services, stages, start_order

OURS = {name: service for name, service in services().items() if service["image"].startswith("paceline/")}
AGENTS = {name: service for name, service in OURS.items() if service["build"]["target"] == "agent"}
ONE_SHOT = {"migrate", "enrolment"}


def test_the_file_follows_the_compose_specification() -> None:
    jsonschema.Draft202012Validator(COMPOSE).validate(compose())


def test_the_whole_topology_is_there() -> None:
    assert {"postgres", "redis", "migrate", "web", "decisions", "history", "beat", "servers"} <= set(services())
    assert sorted(service["cpus"] for name, service in AGENTS.items() if name != "servers") == [0.25, 0.5, 1.0, 1.0]


def test_services_wait_for_what_they_need() -> None:
    order = start_order()
    assert order.index("postgres") < order.index("migrate") < order.index("web") < order.index("slow")
    for service in services().values():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services()[needed]
            else:
                assert needed in ONE_SHOT


def test_every_lasting_service_reports_whether_it_is_well() -> None:
    assert {name for name, service in services().items() if "healthcheck" not in service} == ONE_SHOT


def test_no_service_runs_as_root() -> None:
    for service in services().values():
        if service["image"].startswith("paceline/"):
            users = [step.rest for step in stages()[service["build"]["target"]] if step.word == "USER"]
            assert users == ["paceline"]
        else:
            assert service["user"] in {"postgres", "redis"}


def test_every_container_is_confined() -> None:
    for name, service in services().items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"], name
        assert "/tmp" in {path.partition(":")[0] for path in service["tmpfs"]}, name
        assert {"mem_limit", "pids_limit", "restart"} <= set(service), name
        assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc"} & set(service), name


def test_machines_reach_neither_redis_nor_postgresql() -> None:
    networks = {name: set(service["networks"]) for name, service in services().items()}
    assert {name for name, joined in networks.items() if "machines" in joined} == {*AGENTS, "web"}
    assert {name for name, joined in networks.items() if "stores" in joined} == set(networks) - set(AGENTS)
    assert {name for name, joined in networks.items() if "outside" in joined} == {"history"}, "it delivers alerts"
    assert compose()["networks"] == {"stores": {"internal": True}, "machines": None, "outside": None}


def test_every_volume_is_declared_and_used() -> None:
    used = {volume for service in services().values() for volume, _, _ in mounts(service)}
    assert used == set(compose()["volumes"])


def test_no_command_or_environment_contains_secrets() -> None:
    for service in services().values():
        assert not set(make_env.SECRETS) & set(service.get("environment", {}))
        assert "requirepass " not in " ".join(word for word in service["command"] if "\n" not in word)


def test_each_container_is_given_the_secrets_that_it_needs_and_no_other() -> None:
    ours = {"secret_key", "database_url", "redis_url"}
    given = {name: set(service.get("secrets", [])) for name, service in services().items()}
    for name, service in services().items():
        stores = {"postgres": {"postgres_password"}, "redis": {"redis_password"}}
        assert given[name] == (set() if name in AGENTS else stores.get(name, ours))
        files = {str(value) for key, value in service.get("environment", {}).items() if key.endswith("_FILE")}
        files |= set(re.findall(r"/run/secrets/\w+", " ".join(service["command"])))
        assert files == {f"/run/secrets/{secret}" for secret in given[name]}, name


def test_secrets_are_files_that_the_script_makes() -> None:
    named = {name: Path(secret["file"]) for name, secret in compose()["secrets"].items()}
    assert named == {name.lower(): Path("deploy", "env", "secrets", name.lower()) for name in make_env.SECRETS}
    assert set(make_env.split(secrets().values())) == set(named)


def test_commands_are_those_that_run_on_one_machine() -> None:
    python = ["python", *control_plane.web_command("0.0.0.0", 8000)[1:]]
    local = {"decisions": control_plane.DECISIONS, "history": control_plane.HISTORY, "beat": control_plane.BEAT}
    assert services()["web"]["command"] == python
    for name, command in local.items():
        assert services()[name]["command"] == ["python", *command[1:]]


def test_a_container_run_by_itself_is_the_web_process() -> None:
    commands = [step.rest for step in stages()["controlplane"] if step.word == "CMD"]
    assert re.sub(r"\s+", " ", commands[-1]) == str(services()["web"]["command"]).replace("'", '"')


def test_ports_are_those_that_are_listened_on() -> None:
    (published,) = services()["web"]["ports"]
    _, outside, inside = published.split(":")
    assert services()["web"]["command"][services()["web"]["command"].index("--port") + 1] == inside
    assert services()["web"]["environment"]["PACELINE_URL"].endswith(f":{outside}")
    assert any(step.rest == inside for step in stages()["controlplane"] if step.word == "EXPOSE")
    assert all(f"http://web:{inside}" in agent["command"] for agent in AGENTS.values())


def test_variables_are_those_that_the_settings_read() -> None:
    known = (ROOT / "controlplane" / "config" / "environment.py").read_text()
    given = {name.removesuffix("_FILE") for name in services()["web"]["environment"]}
    given |= set(parse_env(secrets()["controlplane.env"]))
    assert {name for name in given if f'"{name}"' not in known} == set()


def test_every_machine_gets_a_token_of_its_own() -> None:
    command = services()["enrolment"]["command"]
    assert set(command[command.index("/enrolment") + 1 :]) == set(AGENTS)
    for name, agent in AGENTS.items():
        assert "@/enrolment/token" in agent["command"]
        assert ("enrolment", name, "/enrolment") in mounts(agent), "its own folder, and no token of another"
        assert next(each for each in agent["volumes"] if isinstance(each, dict))["read_only"]
        assert agent["command"][agent["command"].index("--name") + 1] == name


def test_only_the_image_of_the_agents_has_torch() -> None:
    def installed(stage: str) -> str:
        files = re.findall(r"-r (\S+)", " ".join(step.rest for step in stages()[stage] if step.word == "RUN"))
        return "\n".join((ROOT / file).read_text() for file in files)

    assert "torch==" in installed("agent")
    assert "torch" not in installed("controlplane").replace("No torch.", "")


def test_what_images_copy_exists_and_is_let_through() -> None:
    allowed = [line.lstrip("!").rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines()]
    for stage in ("controlplane", "agent", "training"):
        for source, _ in copied(stage):
            assert source.exists()
            assert source.relative_to(ROOT).parts[0] in allowed


def test_the_agents_image_holds_all_that_a_machine_needs(tmp_path: Path) -> None:
    unpack("agent", tmp_path)
    command = [sys.executable, *entrypoint("agent")[1:], "join", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=bare_environment())
    assert (done.returncode, done.stderr) == (0, "")


def test_the_control_planes_image_needs_no_torch(tmp_path: Path) -> None:
    unpack("controlplane", tmp_path / "app")
    blocked = tmp_path / "blocked"
    for package in ("torch", "sklearn", "workers"):
        (blocked / package).mkdir(parents=True)
        (blocked / package / "__init__.py").write_text(f"raise ImportError('{package} is not in this image')")
    environment = {**bare_environment(), "PYTHONPATH": str(blocked), "PACELINE_DATA_DIR": str(tmp_path / "data")}
    program = "import controlplane.config.asgi, controlplane.runtime.tasks"
    for command in (["-c", program], ["manage.py", "check"]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path / "app",
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr


def test_secrets_are_made_once_for_their_owner_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "env"
    assert make_env.main(folder) == 0
    made = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in make_env.NAMES} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "secrets")} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder / "secrets").iterdir()} == {0o444}
    assert make_env.main(folder) == 0
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == made
    assert not any(secret in capsys.readouterr().out for secret in re.findall(r"[0-9a-f]{48}", str(made)))


@pytest.mark.parametrize("which", ["postgres.env", "redis_url"])
def test_a_full_disk_leaves_no_half_of_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    opened = os.open

    def full(path: Path, *more: int) -> int:
        if which in str(path):
            raise OSError(28, "No space left on device")
        return opened(path, *more)

    monkeypatch.setattr(make_env.os, "open", full)
    with pytest.raises(OSError, match="No space"):
        make_env.main(tmp_path)
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == (set() if which == "postgres.env" else set(make_env.NAMES))
    monkeypatch.undo()
    assert make_env.main(tmp_path) == 0
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 3 + 5


def test_an_installation_of_an_earlier_release_keeps_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in secrets().items():
        (tmp_path / name).write_text(text)
    assert make_env.main(tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path}: unchanged; 5 of its secrets now have separate files.\n"
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == {
        "secret_key": "s" * 64,
        "database_url": f"postgres://paceline:{'p' * 48}@postgres:5432/paceline",
        "redis_url": f"redis://:{'r' * 48}@redis:6379/0",
        "postgres_password": "p" * 48,
        "redis_password": "r" * 48,
    }
    (tmp_path / "secrets" / "redis_url").unlink()
    assert make_env.main(tmp_path) == 0
    assert "1 of its secrets" in capsys.readouterr().out


def test_the_control_planes_services_alone_read_settings_of_ones_own() -> None:
    own = [{"path": "deploy/env/settings.env", "required": False}]
    for name, service in services().items():
        is_control_plane = name in OURS and name not in AGENTS
        assert service.get("env_file") == (own if is_control_plane else None), name


def test_settings_of_ones_own_are_no_ones_elses_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_env.main(tmp_path)
    (tmp_path / "settings.env").write_text("# mail\nEMAIL_URL=smtp://mail:25\nSECRET_KEY_FALLBACKS=" + "o" * 50 + "\n")
    assert make_env.main(tmp_path) == 0
    with (tmp_path / "settings.env").open("a") as file:
        file.write("REDIS_URL=redis://elsewhere\nPACELINE_URL=https://elsewhere\n")
    capsys.readouterr()
    assert make_env.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert "REDIS_URL: compose takes it from secrets/redis_url, not from settings.env." in said
    assert "PACELINE_URL: docker-compose.yml sets it and overrides settings.env: change it there." in said
    assert set(make_env.IN_COMPOSE) == set(services()["web"]["environment"])


def test_variables_without_effect_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_env.main(tmp_path)
    with (tmp_path / "controlplane.env").open("a") as file:
        file.write("EMAIL_URL=smtp://me:hidden@mail:25\n# PACELINE_URL=x\nPACELINE_CREDENTIAL_DAYS=7\n")
    capsys.readouterr()
    assert make_env.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert "EMAIL_URL: compose does not read controlplane.env: set it in settings.env as well." in said
    assert "PACELINE_CREDENTIAL_DAYS: " in said
    assert "PACELINE_URL" not in said
    assert "hidden" not in said
    (tmp_path / "settings.env").write_text("EMAIL_URL=smtp://me:hidden@mail:25\nPACELINE_CREDENTIAL_DAYS=7\n")
    assert make_env.main(tmp_path) == 0


def test_a_secret_that_differs_from_its_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_env.main(tmp_path)
    path = tmp_path / "controlplane.env"
    path.write_text(re.sub(r"SECRET_KEY=.*", "SECRET_KEY=" + "n" * 64, path.read_text()))
    capsys.readouterr()
    assert make_env.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert "SECRET_KEY: controlplane.env and secrets/secret_key differ" in said
    assert "n" * 64 not in said
    secret = tmp_path / "secrets" / "secret_key"
    secret.unlink()
    assert make_env.main(tmp_path) == 0
    assert secret.read_text() == "n" * 64


def test_half_a_set_of_secrets_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "redis.env").touch()
    assert make_env.main(tmp_path) == 1
    assert "has redis.env but not controlplane.env, postgres.env" in capsys.readouterr().out


def secrets() -> dict[str, str]:
    return make_env.contents(postgres="p" * 48, redis="r" * 48, secret_key="s" * 64)
