"""Slurm's commands as scripts that note how they were called."""

from pathlib import Path

SINFO, SBATCH = "printf 'long\\nshort\\n'", "echo 77"
RUNS = "JobState=RUNNING Reason=None Restarts=0 StartTime=2026-11-27T10:00:00 PreemptTime=None"
"""What scontrol says of a job that no one ends."""


def program(folder: Path, name: str, does: str) -> None:
    file = folder / name
    file.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\n{does}\n')
    file.chmod(0o755)


def calls(slurm: Path) -> list[str]:
    return (slurm / "calls").read_text().splitlines()
