"""A job's environment: the versions of each worker's and server's machine and of the control plane, as stored."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies.wording import listing

VERSIONS: Final = {"paceline": "Paceline", "python": "Python", "torch": "torch"}
"""Values that all processes of a job should have in common."""


ENCRYPTED: Final = ("TLS 1.3",)
"""A machine's report about its network, if it encrypts."""

OF_ONE: Final = ("machine", "pid")
"""Values that differ for each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentLine:
    """Processes whose machines reported the same."""

    processes: str
    machines: str
    found: dict[str, str]
    """By the names of ``Process.environment``, without the machine's; empty if an agent reported nothing."""
    differs: str
    """As text: the versions in which it differs from most others; empty if they agree."""


def protection(job: Job) -> str:
    """How its parameters are sent between processes, in a sentence; empty if no agent reported it."""
    spec = stored_spec(job)
    if spec.attached:
        return "Tensors travel through the script's own process group: Paceline neither sees nor encrypts them."
    role, by = ("worker", "workers") if spec.reduces else ("server", "servers")
    rows = Process.objects.filter(job=job, role=role).order_by("index", "id")
    by_network: dict[str, list[str]] = {}
    for index, environment in rows.values_list("index", "environment"):
        if network := environment.get("network"):
            by_network.setdefault(network, []).append(f"{role[:1]}{index}")
    if len(by_network) == 1:
        (network,) = by_network
        how = f"encrypted ({network})" if network in ENCRYPTED else network
        return f"Parameters travel {how}."
    ways = "; ".join(f"{listing(dict.fromkeys(names))}: {network}" for network, names in by_network.items())
    return f"Parameters travel differently by {by}: {ways}." if ways else ""


def environments(job: Job) -> list[EnvironmentLine]:
    """A line for each kind of environment, workers first. A process whose instances ran on two kinds has two lines."""
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
    """The most frequent version of each package; of two equally frequent ones, the first found."""
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
