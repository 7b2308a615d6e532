"""Reads a job's environment: versions on each worker's and server's machine and of the control plane."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies.wording import listing

VERSIONS: Final = {"paceline": "Paceline", "python": "Python", "torch": "torch"}
"""Versions that should be equal for all processes of a job."""


ENCRYPTED: Final = ("TLS 1.3",)
"""Values of ``network`` that mean an encrypted connection."""

OF_ONE: Final = ("machine", "pid")
"""Values that are different for each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentLine:
    """Processes with the same environment."""

    processes: str
    machines: str
    found: dict[str, str]
    """Values by the keys of ``Process.environment``, without ``OF_ONE``; empty if the agent reported none."""
    differs: str
    """Versions that differ from those of most processes, as text; empty if none."""


def protection(job: Job) -> str:
    """A sentence about the encryption of parameters in transit; empty if no agent reported it."""
    spec = stored_spec(job)
    if spec.attached:
        return "Tensors are sent through the script's own process group; Paceline does not encrypt them."
    role, by = ("worker", "workers") if spec.reduces else ("server", "servers")
    rows = Process.objects.filter(job=job, role=role).order_by("index", "id")
    by_network: dict[str, list[str]] = {}
    for index, environment in rows.values_list("index", "environment"):
        if network := environment.get("network"):
            by_network.setdefault(network, []).append(f"{role[:1]}{index}")
    if len(by_network) == 1:
        (network,) = by_network
        how = f"encrypted ({network})" if network in ENCRYPTED else network
        return f"Parameters are sent {how}."
    ways = "; ".join(f"{listing(dict.fromkeys(names))}: {network}" for network, names in by_network.items())
    return f"Parameter transport differs between {by}: {ways}." if ways else ""


def environments(job: Job) -> list[EnvironmentLine]:
    """A line for each distinct environment, workers first. A process whose instances had two has two lines."""
    rows = Process.objects.filter(job=job).order_by("-role", "index", "id")
    alike: dict[tuple[tuple[str, str], ...], list[tuple[str, str]]] = {}
    for role, index, environment in rows.values_list("role", "index", "environment"):
        kind = tuple(sorted((name, text) for name, text in environment.items() if name not in OF_ONE))
        alike.setdefault(kind, []).append((f"{role[:1]}{index}", environment.get("machine", "")))
    usual = _usual({kind: len(members) for kind, members in alike.items()})
    return [
        EnvironmentLine(
            processes=listing(dict.fromkeys(title for title, _ in members)),
            machines=listing(dict.fromkeys(machine for _, machine in members if machine)),
            found=dict(kind),
            differs=_differs(dict(kind), usual),
        )
        for kind, members in alike.items()
    ]


def _usual(counts: dict[tuple[tuple[str, str], ...], int]) -> dict[str, str]:
    """The most frequent version of each package; the first found if several are equally frequent."""
    usual = {}
    for name in VERSIONS:
        seen: Counter[str] = Counter()
        for kind, count in counts.items():
            if text := dict(kind).get(name):
                seen[text] += count
        if seen:
            usual[name] = seen.most_common(1)[0][0]
    return usual


def _differs(found: dict[str, str], usual: dict[str, str]) -> str:
    odd = [
        f"{VERSIONS[name]}: most have {usual[name]}" for name in usual if found.get(name, usual[name]) != usual[name]
    ]
    return f"differs in {'; '.join(odd)}" if odd else ""
