"""The convergence guards, which judge whether a change of policies harms convergence."""

from controlplane.policies.entries import Registration
from controlplane.protocol.guard import Guard

REGISTRATIONS = (
    Registration(
        question="guard",
        name="loss-forecast",
        parameters=Guard,
        path="controlplane.policies.guard.loss_forecast:LossForecast",
        explanation="Compares training and held-out losses after a change with forecasts from before it.",
    ),
)
