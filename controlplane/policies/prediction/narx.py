"""Nonlinear autoregressive model with exogenous series: speed, CPU and memory (LB-BSP section 3.2.2, Eq. 4).

It can distinguish a lasting change, which CPU or memory explains, from a disturbance, which they do not.
"""

from dataclasses import dataclass
from typing import ClassVar

from controlplane.policies.prediction.networks import NARX, Network
from controlplane.policies.prediction.recurrent import Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class Narx(Recurrent):
    """Feedforward, one hidden layer, over the last speeds and the last and coming CPU and memory."""

    name: ClassVar[str] = "narx"
    network: ClassVar[Network] = NARX
