"""``make locks``: the exact wheels of the images with their hashes, into ``requirements/locks``.

torch is not included: its wheels differ by index (CPU or CUDA), and hashes are for one index. Its dependencies other
than CUDA are included.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "requirements" / "locks"
NAMES = ("agent", "controlplane", "tracing")
BY_INDEX = "torch"
OF_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
HEAD = "# Made by `make locks` from requirements/{name}.txt{but}. Installed with --require-hashes.\n"


def requirements_of(name: str) -> str:
    """The requirements to lock."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(f"{BY_INDEX}==")]
    return "\n".join([*kept, *(OF_TORCH if len(kept) < len(lines) else ())]) + "\n"


def main(uv: str) -> int:
    """Write all lock files; return the exit code."""
    LOCKS.mkdir(exist_ok=True)
    for name in NAMES:
        source = requirements_of(name)
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "-"]
        done = subprocess.run(
            command, input=source, cwd=ROOT / "requirements", capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)  # noqa: T201
            return 1
        but = f" without {BY_INDEX}" if f"\n{BY_INDEX}==" in (ROOT / "requirements" / f"{name}.txt").read_text() else ""
        (LOCKS / f"{name}.txt").write_text(HEAD.format(name=name, but=but) + done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
