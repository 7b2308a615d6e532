"""Checks which policies are compatible with one another, and with a kind of job.

All functions check capabilities of policies, never their names. ``conflict`` and ``unsuited`` accept both policies and
their classes.
"""

from typing import Final

from controlplane.core.barriers import (
    AsyncBarrier,
    PartialBarrier,
    QuorumBarrier,
    SampledByPeers,
    includes_all_workers,
    is_full,
)
from controlplane.core.choices import Budgeting, Federating, Metered, Partitioned, Scaling
from controlplane.protocol.optimizers import clips_by_norm, knows_step
from controlplane.protocol.spec import JobSpec

Refusal = tuple[str, object, str]
"""Field, found, expected."""

ATTACHED: Final = "launch attached"

SAMPLING: Final = "synchronization.barrier.sampling"

MOST_PEERS: Final = 500
"""Maximum number of workers with peer sampling: each receives the addresses of all."""


def conflict(batching: object, barrier: object, data: object) -> str | None:
    """Why these policies are incompatible, as a sentence; None: they are compatible."""
    if isinstance(barrier, QuorumBarrier) and isinstance(data, Partitioned):
        return (
            f"barrier {_name(barrier)} drops the updates of late workers, and with data {_name(data)} no other "
            "worker draws their samples: data of slow workers would hardly be used"
        )
    if isinstance(barrier, SampledByPeers) and isinstance(data, Partitioned):
        return (
            f"with sampling peers a worker continues without the control plane, and data {_name(data)} hands out its "
            "samples one iteration at a time; use data shared, or sampling central"
        )
    if isinstance(batching, Metered) and not is_full(barrier):
        return (
            f"batching {_name(batching)} with an objective of energy or cost lets efficient machines take longer, and "
            f"barrier {_name(barrier)} does not wait for them; use bsp, or objective time"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, AsyncBarrier):
        return (
            f"batching {_name(batching)} gives all workers one time budget per iteration, but with barrier "
            f"{_name(barrier)} workers are not in the same iteration"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, PartialBarrier):
        return f"both batching {_name(batching)} and barrier {_name(barrier)} decide when an iteration is cut short"
    if isinstance(batching, Budgeting) and isinstance(barrier, QuorumBarrier):
        return (
            f"with batching {_name(batching)} all workers are ready at the same time, and barrier {_name(barrier)} "
            "would drop updates that no worker has to wait for"
        )
    return None


def unsuited(spec: JobSpec, *, batching: object, barrier: object, data: object) -> Refusal | None:
    """Why a job of this kind cannot use these policies; None: it can."""
    if spec.autopilot is not None and isinstance(batching, Metered):
        expected = "none with an objective of energy or cost: the autopilot compares times, and would leave it"
        return "autopilot", spec.autopilot.mode, f"{expected}; or objective: time"
    if spec.attached:
        return _unattached(batching, barrier, data)
    if spec.division is not None and isinstance(data, Partitioned):
        return "workload.partition", spec.division, f"none with data {_name(data)}, which divides the samples itself"
    if spec.federated is not None and isinstance(barrier, SampledByPeers):
        expected = "central in a federated job: its clients may be behind a firewall or NAT, where others cannot reach"
        return SAMPLING, "peers", f"{expected} them to ask"
    cutting = [policy for policy in (barrier, batching) if isinstance(policy, PartialBarrier | Budgeting)]
    if spec.federated is not None and cutting:
        return "federated", _name(cutting[0]), "policies that complete local steps; this one cuts them short"
    return None


def _unattached(batching: object, barrier: object, data: object) -> Refusal | None:
    """Features that need Paceline's own servers or training loop, which a script does not have."""
    if not is_full(barrier):
        expected = f"bsp with {ATTACHED}: the collectives of DDP and FSDP need the gradients of all ranks"
        return _native("barrier", barrier, expected)
    if isinstance(data, Partitioned):
        return _native("data", data, f"shared with {ATTACHED}, where each rank loads any sample")
    if isinstance(batching, Budgeting):
        expected = f"a policy that sets shares, with {ATTACHED}, such as lb-bsp-cpu: this one interrupts work, "
        return _native("batching", batching, f"{expected}which a script cannot")
    if isinstance(batching, Federating):
        expected = f"another policy with {ATTACHED}, such as lb-bsp-gpu: this one is for federations"
        return _native("batching", batching, expected)
    return None


def _native(question: str, policy: object, expected: str) -> Refusal:
    name = _name(policy)
    return f"synchronization.{question}.name", name, f"{expected}; for {name} use launch: native"


def surplus(spec: JobSpec, placement: object) -> Refusal | None:
    """Emulated links that no server can have, or None."""
    links = len(spec.emulate_servers or [])
    if links <= spec.servers or isinstance(placement, Scaling):
        return None
    expected = f"at most one for each of the {spec.servers} servers: placement {_name(placement)} does not add any"
    return "emulate_servers", f"{links} links", expected


def misfit(spec: JobSpec, barrier: object) -> Refusal | None:
    """Why a job cannot run under a barrier: field, found, expected. None: it can."""
    if spec.workers_hold and not includes_all_workers(barrier):
        what = "communication all-reduce" if spec.reduces else "server_mode aggregating"
        expected = f"one with all workers in every iteration (bsp, aggressive) with {what}, where workers hold the"
        need = f"parameters: {_name(barrier)} needs servers that apply each worker's update separately"
        return "synchronization.barrier.name", _name(barrier), f"{expected} {need}"
    if not isinstance(barrier, AsyncBarrier):
        return None
    if isinstance(barrier, SampledByPeers):
        if not spec.asks_peers:
            expected = "central: the workers of this job were started without a port at which others can ask them. A"
            return SAMPLING, "peers", f"{expected} job that is submitted with peers can change to central and back"
        if spec.workers > MOST_PEERS:
            expected = f"at most {MOST_PEERS} with sampling peers, since each worker gets the addresses of all others"
            return "workers", spec.workers, f"{expected}; or sampling central"
    applied = "federated.server" if spec.federated else "optimizer"
    clip = spec.applied.clip
    if clips_by_norm(spec.applied) and clip is not None:
        return (
            f"{applied}.clip.norm",
            clip.norm,
            f"none with barrier {barrier.name}: each server applies an update at a different time, so its total norm "
            "is unknown. Clip by value, or choose a barrier with common iterations (bsp, aggressive, backup)",
        )
    if barrier.step_scale in (None, "auto") and not knows_step(spec.applied):
        return (
            "synchronization.barrier.step_scale",
            "auto",
            "mean, average, paper or a number with your own optimizer: it is unknown whether n steps of 1/n equal "
            f"one step of {spec.applied.name}",
        )
    return None


def _name(policy: object) -> str:
    name: str = getattr(policy, "name", type(policy).__name__)
    return name
