"""The autopilots: which of the policies that a job may have it should have."""

from controlplane.policies.entries import Registration
from controlplane.protocol.autopilot import Autopilot

REGISTRATIONS = (
    Registration(
        question="autopilot",
        name="predicted-gain",
        parameters=Autopilot,
        path="controlplane.policies.autopilot.predicted_gain:PredictedGain",
        explanation="Simulates the alternatives on what was measured, switches where the predicted gain exceeds the "
        "model's error, and goes back where a sample then takes longer than before.",
    ),
)
