"""What a network policy lets its pods connect to, as Kubernetes defines it for what our policies use."""

from typing import Any, NamedTuple


class Target(NamedTuple):
    """Where a connection goes: a pod of a namespace by its labels, or an address outside the cluster."""

    port: int
    labels: dict[str, str] | None = None
    in_our_namespace: bool = True
    protocol: str = "TCP"


def lets_out(policy: dict[str, Any], target: Target) -> bool:
    """Whether a pod that the policy selects may connect to the target."""
    spec = policy["spec"]
    return "Egress" not in spec["policyTypes"] or any(_allows(rule, target) for rule in spec["egress"])


def _allows(rule: dict[str, Any], target: Target) -> bool:
    """No peers mean all, and no ports mean all."""
    assert set(rule) <= {"to", "ports"}, rule
    ports, peers = rule.get("ports"), rule.get("to")
    on_port = ports is None or (target.port, target.protocol) in {
        (each["port"], each.get("protocol", "TCP")) for each in ports
    }
    return on_port and (peers is None or any(_matches(peer, target) for peer in peers))


def _matches(peer: dict[str, Any], target: Target) -> bool:
    """A pod selector alone means pods of the policy's own namespace; no selector matches an address outside."""
    assert set(peer) <= {"podSelector", "namespaceSelector"}, peer
    if target.labels is None:
        return False
    if "namespaceSelector" in peer:
        assert peer == {"namespaceSelector": {}}, peer
        return True
    return target.in_our_namespace and peer["podSelector"]["matchLabels"].items() <= target.labels.items()
