"""``python deploy/make_env.py``: makes the secrets of docker-compose.yml, once, into ``deploy/env/``.

Needs nothing but Python. Files that exist are left as they are, so that a running installation keeps its passwords; but
they share passwords, so either all are there or none.
"""

import os
import secrets
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "env"
NAMES = ("controlplane.env", "postgres.env", "redis.env")


def contents(*, postgres: str, redis: str, secret_key: str) -> dict[str, str]:
    """Each file's lines, given the three secrets."""
    return {
        "controlplane.env": (
            f"SECRET_KEY={secret_key}\n"
            f"DATABASE_URL=postgres://paceline:{postgres}@postgres:5432/paceline\n"
            f"REDIS_URL=redis://:{redis}@redis:6379/0\n"
        ),
        "postgres.env": f"POSTGRES_USER=paceline\nPOSTGRES_DB=paceline\nPOSTGRES_PASSWORD={postgres}\n",
        "redis.env": f"REDIS_PASSWORD={redis}\n",
    }


def main(folder: Path = FOLDER) -> int:
    """Write them; the exit code."""
    found = [name for name in NAMES if (folder / name).exists()]
    if len(found) == len(NAMES):
        print(f"{folder}: all secrets are there already; nothing was changed.")  # noqa: T201
        return 0
    if found:
        rest = ", ".join(name for name in NAMES if name not in found)
        print(f"{folder}: has {', '.join(found)} but not {rest}; they share passwords: restore or remove all.")  # noqa: T201
        return 1
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = contents(postgres=secrets.token_hex(24), redis=secrets.token_hex(24), secret_key=secrets.token_urlsafe(64))
    for name, text in made.items():
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    print(f"{folder}: made {', '.join(NAMES)}. Keep them to yourself.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
