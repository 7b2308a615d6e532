"""Long short-term memory network over the last speeds (LB-BSP section 3.2.2, Table 3)."""

from dataclasses import dataclass
from typing import ClassVar

from controlplane.policies.prediction.networks import LSTM, Network
from controlplane.policies.prediction.recurrent import Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm(Recurrent):
    """Blind to CPU and memory."""

    name: ClassVar[str] = "lstm"
    network: ClassVar[Network] = LSTM
