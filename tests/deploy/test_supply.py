"""Where dependencies come from: locks with hashes, images by digest, advisories where they can be looked up."""

import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import audit_dependencies, lock, pin_images
from tests.deploy.kubernetes import containers
from tests.deploy.kustomize import render
from tests.deploy.reading import ROOT, services, stages

LOCKS = sorted((ROOT / "requirements" / "locks").glob("*.txt"))


def pins(text: str) -> dict[str, str]:
    """Versions by name."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "-", " ")):
            requirement = Requirement(line.partition(" \\")[0].partition(" --hash")[0])
            (version,) = (each.version for each in requirement.specifier) if requirement.specifier else ("",)
            found[canonicalize_name(requirement.name)] = version
    return found


def test_there_is_a_lock_for_each_file_that_images_install() -> None:
    assert [path.stem for path in LOCKS] == sorted(lock.NAMES)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_the_versions_that_are_tested(path: Path) -> None:
    locked = pins(path.read_text())
    constraints = pins((ROOT / "requirements" / "constraints.txt").read_text())
    wanted = {name: version for name, version in pins(lock.requirements_of(path.stem)).items() if version}
    assert {name: locked.get(name) for name in wanted} == wanted, "run: make locks"
    assert {name: locked[name] for name in locked.keys() & constraints.keys()} == {
        name: constraints[name] for name in locked.keys() & constraints.keys()
    }, "run: make locks"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_of_a_lock_has_its_hashes(path: Path) -> None:
    entries = re.split(r"\n(?=\S)", path.read_text().strip())
    bare = [entry.splitlines()[0] for entry in entries if not entry.startswith("#") and "--hash=sha256:" not in entry]
    assert (bare, len(entries) > 3, "torch" in pins(path.read_text())) == ([], True, False)


def test_images_are_installed_by_hash() -> None:
    commands = [step.rest for stage in stages().values() for step in stage if step.word == "RUN"]
    for command in commands:
        for part in re.split(r"&&|\|\|", command):
            if "pip install" in part:
                assert "--require-hashes -r requirements/locks/" in part or "TORCH_INDEX" in part, part


def test_every_image_can_be_given_by_digest() -> None:
    text = (ROOT / "docker-compose.yml").read_text() + (ROOT / "Dockerfile").read_text()
    for name, image in pin_images.IMAGES.items():
        assert f"{name}:-{image}" in text
    assert "ARG PYTHON_IMAGE=python:3.11-slim\nFROM ${PYTHON_IMAGE} AS base" in text
    foreign = {service["image"] for service in services().values() if not service["image"].startswith("paceline/")}
    assert foreign == {f"${{{name}:-{pin_images.IMAGES[name]}}}" for name in ("POSTGRES_IMAGE", "REDIS_IMAGE")}


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that says what is in a file."""
    program = tmp_path / "docker"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write(open({str(tmp_path / 'said')!r}).read())\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    return tmp_path / "said"


def test_digests_are_written_as_compose_reads_them(docker: Path, tmp_path: Path) -> None:
    docker.write_text("sha256:" + "a" * 64 + "\n")
    assert pin_images.main(tmp_path / "env" / "images.env") == 0
    lines = (tmp_path / "env" / "images.env").read_text().splitlines()
    assert lines[1] == f"POSTGRES_IMAGE=postgres:17@sha256:{'a' * 64}"
    assert len(lines) == len(pin_images.IMAGES)


def test_kubernetes_runs_the_stores_by_digest(docker: Path, tmp_path: Path) -> None:
    """The written component in an overlay."""
    docker.write_text("sha256:" + "a" * 64 + "\n")
    assert pin_images.main(tmp_path / "env" / "images.env") == 0
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    small = os.path.relpath(ROOT / "deploy" / "kubernetes" / "overlays" / "small", overlay.resolve())
    (overlay / "kustomization.yaml").write_text(f"resources: [{small}]\ncomponents: [../env/digests]\n")
    found = {
        container["image"]
        for document in render(overlay)
        if document["kind"] in ("Deployment", "StatefulSet")
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    digest = "sha256:" + "a" * 64
    assert found == {f"redis@{digest}", f"postgres@{digest}", "paceline/controlplane:latest"}


def test_every_image_of_others_can_be_pinned() -> None:
    """What is built on or run by tag is in the list of the script, with that tag."""
    base = re.findall(r"ARG PYTHON_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text())
    ours = {name: service["image"] for name, service in services().items() if "build" not in service}
    named = {f"${{{name}:-{image}}}" for name, image in pin_images.IMAGES.items()}
    assert (base, set(ours.values())) == ([pin_images.IMAGES["PYTHON_IMAGE"]], set(ours.values()) & named)
    kubernetes = {each["image"] for each in containers("overlays/small") if not each["image"].startswith("paceline/")}
    assert kubernetes == set(pin_images.IMAGES.values()) - {pin_images.IMAGES["PYTHON_IMAGE"]}


def test_what_is_no_digest_is_not_written(docker: Path, tmp_path: Path) -> None:
    docker.write_text("<html>")
    with pytest.raises(SystemExit, match="expected a digest; nothing was written"):
        pin_images.main(tmp_path / "images.env")
    assert not (tmp_path / "images.env").exists()


def row(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "version": "1", **more}


@pytest.mark.parametrize(
    ("rows", "status", "says"),
    [
        ([row("a", vulns=[]), row("b", vulns=[])], 0, "2 packages have no known vulnerabilities."),
        ([row("a", vulns=[]), row("b", skip_reason="?")], 0, "1 are not known to the advisory source"),
        ([row("a", skip_reason="?")], 0, "No advisory source was reachable: 1 packages were NOT audited."),
        ([], 0, "No advisory source was reachable"),
        ([row("a", vulns=[{"id": "CVE-1", "fix_versions": ["2"]}])], 1, "a 1: CVE-1, fixed in 2"),
    ],
)
def test_a_known_vulnerability_fails_and_a_missing_answer_is_reported(rows: list[Any], status: int, says: str) -> None:
    found, lines = audit_dependencies.verdict({"dependencies": rows})
    assert (found, says in "\n".join(lines)) == (status, True)


def test_an_audit_that_breaks_or_hangs_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!{sys.executable}\nimport sys, time\nif '/slow' in sys.argv: time.sleep(60)\nprint('no')\n")
    program.chmod(0o700)
    assert audit_dependencies.main(str(program), "/x") == 0
    monkeypatch.setattr(audit_dependencies, "PATIENCE_S", 0.5)
    assert audit_dependencies.main(str(program), "/slow") == 0
    assert capsys.readouterr().out.count("No advisory source was reachable") == 2


def test_a_fault_that_is_found_is_the_exit_code(tmp_path: Path) -> None:
    document = {"dependencies": [row("a", vulns=[{"id": "CVE-1", "fix_versions": []}])]}
    program = tmp_path / "pip-audit"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(document))})\nraise SystemExit(1)\n")
    program.chmod(0o700)
    assert audit_dependencies.main(str(program), "/x") == 1
