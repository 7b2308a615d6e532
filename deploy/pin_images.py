"""``python deploy/pin_images.py``: writes the digests of the base images and of the stores into ``deploy/env``.

It asks the registry through docker, so run it where images are built. Then:

    docker compose --env-file deploy/env/images.env up --build --detach

and in a kustomization of ``deploy/kubernetes/overlays``:

    components: [../../../env/digests]
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent / "env" / "images.env"
IMAGES = {"PYTHON_IMAGE": "python:3.11-slim", "POSTGRES_IMAGE": "postgres:17", "REDIS_IMAGE": "redis:7.4"}
COMPONENT = """apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
images:
"""
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
    digests = {image: digest_of(image) for image in IMAGES.values()}
    _write(file, [f"{name}={image}@{digests[image]}\n" for name, image in IMAGES.items()])
    pinned = [f"  - {{name: {image.partition(':')[0]}, digest: '{digest}'}}\n" for image, digest in digests.items()]
    _write(file.parent / "digests" / "kustomization.yaml", [COMPONENT, *pinned])
    print(f"{file}, {file.parent / 'digests'}: {len(digests)} images by digest")  # noqa: T201
    return 0


def _write(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text("".join(lines))
    os.replace(draft, file)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
