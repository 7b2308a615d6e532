"""Defines the default rules. Pure."""

from typing import Final

from controlplane.alerts.rules import Rule

DEFAULT_RULES: Final = (
    Rule(name="Worker or server lost", kind="worker-lost", severity="warning"),
    Rule(name="Job stalled", kind="job-stalled", severity="critical"),
    Rule(name="Job failed", kind="job-failed", severity="critical"),
    Rule(name="Waiting above 30 %", kind="waiting", severity="warning", for_s=600.0, clear_s=300.0),
    Rule(name="Straggler costs 10 %", kind="straggler", severity="warning", for_s=60.0, clear_s=120.0),
    Rule(name="Checkpoint failed", kind="checkpoint-failed", severity="warning"),
    Rule(name="Loss not finite", kind="loss-not-finite", severity="critical"),
    Rule(name="Ingest behind", kind="ingest-behind", severity="warning", for_s=30.0),
    Rule(name="Disk filling", kind="disk-filling", severity="critical", for_s=60.0),
    Rule(name="Redis filling", kind="redis-filling", severity="critical", for_s=60.0),
    Rule(name="Delivery failed", kind="delivery-failed", severity="warning"),
)
