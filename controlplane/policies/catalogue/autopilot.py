"""The autopilots, which choose among the policies that a job allows."""

from controlplane.policies.entries import Registration
from controlplane.protocol.autopilot import Autopilot

REGISTRATIONS = (
    Registration(
        question="autopilot",
        name="predicted-gain",
        parameters=Autopilot,
        path="controlplane.policies.autopilot.predicted_gain:PredictedGain",
        explanation="Simulates alternative policies with the measured speeds, switches when the predicted gain exceeds "
        "the model's error, and reverts the switch if a sample then takes longer.",
    ),
)
