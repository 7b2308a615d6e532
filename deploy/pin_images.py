"""``python deploy/pin_images.py``: writes the digests of the base images into ``deploy/env/images.env``.

It asks the registry through docker, so run it where images are built. Then:

    docker compose --env-file deploy/env/images.env up --build --detach
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent / "env" / "images.env"
IMAGES = {"PYTHON_IMAGE": "python:3.11-slim", "POSTGRES_IMAGE": "postgres:17", "REDIS_IMAGE": "redis:7.4"}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image: str) -> str:
    """The digest of the image's list of platforms.

    Raises:
        SystemExit: if docker does not return it.
    """
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit("docker: not found; run this where images are built") from None
    said = done.stdout.strip()
    if done.returncode or not DIGEST.fullmatch(said):
        raise SystemExit(
            f"{image}: found {(said or done.stderr.strip())[:300]!r}, expected a digest; nothing was written"
        )
    return said


def main(file: Path = FILE) -> int:
    """Write all digests or none; returns the exit code."""
    lines = [f"{name}={image}@{digest_of(image)}\n" for name, image in IMAGES.items()]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text("".join(lines))
    os.replace(draft, file)
    print(f"{file}: {len(lines)} images by digest")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
