"""``python deploy/make_env.py``: creates the secrets for docker-compose.yml and Kubernetes, once, in ``deploy/env/``.

Needs only Python. Existing files are not changed, so that a running installation keeps its passwords. The files share
passwords, so either all of them exist or none. ``secrets/`` has each secret in a separate file, taken from those files:
compose mounts it into the containers that need it. Put other settings into ``settings.env``, which compose passes to
the control plane; variables in files that compose does not read are errors.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "env"
SECRETS = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "POSTGRES_PASSWORD", "REDIS_PASSWORD")
IN_COMPOSE = ("PACELINE_URL", "ALLOWED_HOSTS", "SECRET_KEY_FILE", "DATABASE_URL_FILE", "REDIS_URL_FILE")
"""Variables that docker-compose.yml sets, which override env files."""

READABLE = 0o444
"""The mode of a file in ``secrets/``: a container's user, unknown here, must read it; only the owner can enter the
folder."""

NAMES = ("controlplane.env", "postgres.env", "redis.env")


def contents(*, postgres: str, redis: str, secret_key: str) -> dict[str, str]:
    """The lines of each file for the three secrets."""
    return {
        "controlplane.env": (
            f"SECRET_KEY={secret_key}\n"
            f"DATABASE_URL=postgres://paceline:{postgres}@postgres:5432/paceline\n"
            f"REDIS_URL=redis://:{redis}@redis:6379/0\n"
        ),
        "postgres.env": f"POSTGRES_USER=paceline\nPOSTGRES_DB=paceline\nPOSTGRES_PASSWORD={postgres}\n",
        "redis.env": f"REDIS_PASSWORD={redis}\n",
    }


def split(texts: Iterable[str]) -> dict[str, str]:
    """Each secret by its file name, from the texts of the env files."""
    pairs = (pair for text in texts for pair in variables(text).items())
    return {name.lower(): value for name, value in pairs if name in SECRETS}


def write_files(folder: Path) -> int:
    """Write the secrets that have no file yet; returns their number."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    texts = [(folder.parent / name).read_text() for name in NAMES]
    missing = {name: value for name, value in split(texts).items() if not (folder / name).exists()}
    write_all({folder / name: value for name, value in missing.items()}, READABLE)
    return len(missing)


def write_all(contents: Mapping[Path, str], mode: int) -> None:
    """Write all files or none: first under temporary names, readable only by their owner, then rename them."""
    drafts = {path.with_name(f".{path.name}.{os.getpid()}"): path for path in contents}
    try:
        for draft, path in drafts.items():
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(contents[path])
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(mode)
        for draft, path in drafts.items():
            draft.rename(path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def variables(text: str) -> dict[str, str]:
    """The variables that an env file sets."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def without_effect(folder: Path) -> list[str]:
    """A sentence for each variable in a file that containers of compose do not read."""
    found = []
    own, made = folder / "settings.env", contents(postgres="", redis="", secret_key="")
    settings = variables(own.read_text()) if own.exists() else {}
    for file, text in made.items():
        given = variables((folder / file).read_text())
        for name, value in given.items():
            secret = folder / "secrets" / name.lower()
            if name in SECRETS and secret.read_text().strip() != value:
                found.append(
                    f"{name}: {file} and secrets/{secret.name} differ, and containers use the latter: write the"
                    " correct value into both"
                )
            elif name not in variables(text) and settings.get(name) != value:
                found.append(f"{name}: compose does not read {file}: set it in settings.env as well")
    for name in settings:
        if name in SECRETS:
            found.append(f"{name}: compose takes it from secrets/{name.lower()}, not from settings.env")
        elif name in IN_COMPOSE:
            found.append(f"{name}: docker-compose.yml sets it and overrides settings.env: change it there")
    return found


def main(folder: Path = FOLDER) -> int:
    """Write the secrets; returns the exit code."""
    found = [name for name in NAMES if (folder / name).exists()]
    if len(found) == len(NAMES):
        if count := write_files(folder / "secrets"):
            print(f"{folder}: unchanged; {count} of its secrets now have separate files.")  # noqa: T201
        else:
            print(f"{folder}: all secrets exist already; nothing was changed.")  # noqa: T201
        for sentence in (lost := without_effect(folder)):
            print(f"{folder}: {sentence}.")  # noqa: T201
        return 1 if lost else 0
    if found:
        rest = ", ".join(name for name in NAMES if name not in found)
        print(f"{folder}: has {', '.join(found)} but not {rest}; they share passwords: restore or remove all.")  # noqa: T201
        return 1
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = contents(postgres=secrets.token_hex(24), redis=secrets.token_hex(24), secret_key=secrets.token_urlsafe(64))
    write_all({folder / name: text for name, text in made.items()}, 0o600)
    write_files(folder / "secrets")
    print(f"{folder}: created {', '.join(NAMES)} and secrets/. Keep them secret.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
