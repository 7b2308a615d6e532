"""The guards of convergence: whether a change of policies harms it."""

from controlplane.policies.entries import Registration
from controlplane.protocol.guard import Guard

REGISTRATIONS = (
    Registration(
        question="guard",
        name="loss-forecast",
        parameters=Guard,
        path="controlplane.policies.guard.loss_forecast:LossForecast",
        explanation="Compares the training loss after a change with a forecast from the global batches before it.",
    ),
)
