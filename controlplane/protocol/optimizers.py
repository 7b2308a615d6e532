"""The table of optimizers and schedules: torch's names, their options, and where each can run.

Control plane and machines use the same table. The control plane has no torch; a test compares the table with it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from controlplane.protocol.base import Value
from controlplane.protocol.parts import Part, Penalty, SpecError
from controlplane.protocol.settings import described, settings_from
from controlplane.protocol.spec import JobSpec
from controlplane.protocol.training import Optimizer, Schedule

Below = Annotated[float, Meta(ge=0.0, lt=1.0)]
Above = Annotated[float, Meta(ge=0.0, le=1e6)]
Betas = Annotated[tuple[Below, Below], Meta(description="Decay of the two running averages.")]
Epsilon = Annotated[float, Meta(ge=0.0, le=1.0, description="Added to what is divided by.")]
Momentum = Annotated[float, Meta(ge=0.0, le=1.0)]


class SgdOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.SGD``."""

    momentum: Momentum = 0.0
    dampening: Above = 0.0
    weight_decay: Penalty = 0.0
    nesterov: bool = False


class AdamOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Adam``."""

    betas: Betas = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.0
    amsgrad: bool = False
    decoupled_weight_decay: bool = False


class AdamWOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.AdamW``."""

    betas: Betas = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.01
    amsgrad: bool = False


class AdamaxOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Adamax``."""

    betas: Betas = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.0


class NAdamOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.NAdam``."""

    betas: Betas = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.0
    momentum_decay: Above = 0.004
    decoupled_weight_decay: bool = False


class RAdamOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.RAdam``."""

    betas: Betas = (0.9, 0.999)
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.0
    decoupled_weight_decay: bool = False


class RmsPropOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.RMSprop``."""

    alpha: Momentum = 0.99
    eps: Epsilon = 1e-8
    weight_decay: Penalty = 0.0
    momentum: Momentum = 0.0
    centered: bool = False


class AdagradOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Adagrad``."""

    lr_decay: Above = 0.0
    weight_decay: Penalty = 0.0
    initial_accumulator_value: Above = 0.0
    eps: Epsilon = 1e-10


class AdadeltaOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Adadelta``."""

    rho: Momentum = 0.9
    eps: Epsilon = 1e-6
    weight_decay: Penalty = 0.0


class AsgdOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.ASGD``."""

    lambd: Above = 1e-4
    alpha: Above = 0.75
    t0: Annotated[float, Meta(ge=0.0, le=1e12)] = 1e6
    weight_decay: Penalty = 0.0


class RpropOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Rprop``."""

    etas: tuple[Annotated[float, Meta(gt=0.0, lt=1.0)], Annotated[float, Meta(gt=1.0, le=1e6)]] = (0.5, 1.2)
    step_sizes: tuple[Above, Above] = (1e-6, 50)


class AdafactorOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Adafactor``."""

    beta2_decay: Annotated[float, Meta(ge=-1e6, le=0.0)] = -0.8
    eps: tuple[Epsilon | None, Epsilon] = (None, 1e-3)
    d: Annotated[float, Meta(ge=1.0, le=1e6)] = 1.0
    weight_decay: Penalty = 0.0


class MuonOptions(Part, frozen=True, kw_only=True):
    """Of ``torch.optim.Muon``, which accepts only matrices."""

    weight_decay: Penalty = 0.1
    momentum: Momentum = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    eps: Epsilon = 1e-7
    ns_steps: Annotated[int, Meta(ge=1, le=99)] = 5
    adjust_lr_fn: Literal["original", "match_rms_adamw"] | None = None


class OptimizerEntry(Value, frozen=True, kw_only=True):
    """One optimizer of torch."""

    name: str
    torch: str
    """The class in ``torch.optim``."""
    lr: float
    """Default learning rate."""
    options: type[Part]
    element_wise: bool = True
    """Whether the update of an element is independent of all others: then blocks may be cut anywhere."""
    matrices: bool = False
    """Whether it accepts only matrices."""
    proportional: bool = False
    """Whether its step without momentum is proportional to the gradient."""
    fused: bool = False
    """Whether torch has a fused CPU kernel that makes the step in one pass over memory."""


def _table(*entries: OptimizerEntry) -> dict[str, OptimizerEntry]:
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


OPTIMIZERS: Mapping[str, OptimizerEntry] = _table(
    OptimizerEntry(name="sgd", torch="SGD", lr=0.1, options=SgdOptions, proportional=True),
    OptimizerEntry(name="asgd", torch="ASGD", lr=0.01, options=AsgdOptions, proportional=True),
    OptimizerEntry(name="adam", torch="Adam", lr=0.001, options=AdamOptions, fused=True),
    OptimizerEntry(name="adamw", torch="AdamW", lr=0.001, options=AdamWOptions, fused=True),
    OptimizerEntry(name="adamax", torch="Adamax", lr=0.002, options=AdamaxOptions),
    OptimizerEntry(name="nadam", torch="NAdam", lr=0.002, options=NAdamOptions),
    OptimizerEntry(name="radam", torch="RAdam", lr=0.001, options=RAdamOptions),
    OptimizerEntry(name="rmsprop", torch="RMSprop", lr=0.01, options=RmsPropOptions),
    OptimizerEntry(name="adagrad", torch="Adagrad", lr=0.01, options=AdagradOptions, fused=True),
    OptimizerEntry(name="adadelta", torch="Adadelta", lr=1.0, options=AdadeltaOptions),
    OptimizerEntry(name="rprop", torch="Rprop", lr=0.01, options=RpropOptions),
    OptimizerEntry(name="adafactor", torch="Adafactor", lr=0.01, options=AdafactorOptions, element_wise=False),
    OptimizerEntry(name="muon", torch="Muon", lr=0.001, options=MuonOptions, element_wise=False, matrices=True),
)
"""By the name in a job's spec, in lower case."""

REFUSED: Mapping[str, str] = {
    "lbfgs": "it computes gradients several times within one step, and workers push one for each iteration",
    "sparseadam": "it takes sparse gradients, and those of workers are dense; adam is the same on these",
}
"""Optimizers of torch that jobs cannot use, and why."""

SCHEDULES: Mapping[str, str | None] = {
    "constant": None,
    "step": "StepLR",
    "multistep": "MultiStepLR",
    "exponential": "ExponentialLR",
    "cosine": "CosineAnnealingLR",
    "cosine-restarts": "CosineAnnealingWarmRestarts",
    "linear": "LinearLR",
    "polynomial": "PolynomialLR",
    "one-cycle": "OneCycleLR",
    "inverse-sqrt": None,
}
"""Schedules by name in a spec, with torch's name; either may be used, in any case."""

_BY_TORCH = {torch.lower(): name for name, torch in SCHEDULES.items() if torch is not None}


class Setting(Value, frozen=True, kw_only=True):
    """The optimizer settings of some of the parameters."""

    name: str
    """A name of ``OPTIMIZERS``, or ``module:factory``."""
    lr: float | None
    """None: the factory's own."""
    options: dict[str, Any]
    """Those that are not torch's defaults, by torch's names."""

    @property
    def entry(self) -> OptimizerEntry | None:
        """None for a factory."""
        return OPTIMIZERS.get(self.name)


def is_factory(name: str) -> bool:
    """Whether it is a user's own code, ``module:factory``."""
    return ":" in name


def setting_of(optimizer: Optimizer, field: str = "optimizer") -> Setting:
    """The settings of the parameters that are in no group.

    Raises:
        SpecError: unless the optimizer exists and has the given options.
    """
    name = _known(optimizer.name, f"{field}.name")
    return _setting(name, optimizer.lr, optimizer.options | _short(optimizer, name, field), field)


def setting_of_group(optimizer: Optimizer, at: int, field: str = "optimizer") -> Setting:
    """The settings of the group with that index; unless it names another optimizer, it inherits the others.

    Raises:
        SpecError: as ``setting_of``.
    """
    group, usual, field = optimizer.groups[at], setting_of(optimizer, field), f"{field}.groups[{at}]"
    name = _known(group.name, f"{field}.name") if group.name is not None else usual.name
    options = dict(group.options)
    if group.weight_decay is not None:
        _check_once("weight_decay", group.options, f"{field}.weight_decay", group.weight_decay)
        options["weight_decay"] = group.weight_decay
    if name != usual.name:
        return _setting(name, group.lr, options, field)
    lr = usual.lr if group.lr is None else group.lr
    return _setting(name, lr, usual.options | options, field)


def schedule_of(schedule: Schedule, field: str = "optimizer") -> str:
    """The name of the schedule as this table has it.

    Raises:
        SpecError: if there is none of that name, or it lacks what it needs.
    """
    lowered = schedule.name.lower()
    if lowered == "reducelronplateau":
        why = "one that depends on the steps alone: servers, which make the steps, know no metric"
        raise SpecError(f"{field}.schedule.name", schedule.name, why)
    name = _BY_TORCH.get(lowered, lowered)
    if name not in SCHEDULES:
        raise SpecError(f"{field}.schedule.name", schedule.name, f"one of {', '.join(SCHEDULES)}")
    if name == "multistep" and not schedule.at:
        raise SpecError(f"{field}.schedule.at", schedule.at, "at least one step with multistep")
    return name


def check_optimizer(optimizer: Optimizer, field: str = "optimizer") -> None:
    """Raise ``SpecError`` unless the optimizer exists and has the given options."""
    setting_of(optimizer, field)
    schedule_of(optimizer.schedule, field)
    for at, group in enumerate(optimizer.groups):
        if not group.parameters:
            allowed = "at least one name or pattern of names"
            raise SpecError(f"{field}.groups[{at}].parameters", group.parameters, allowed)
        setting_of_group(optimizer, at, field)
    clip = optimizer.clip
    if clip is not None and (clip.norm is None) == (clip.value is None):
        raise SpecError(f"{field}.clip", {"norm": clip.norm, "value": clip.value}, "either norm or value")


def settings(optimizer: Optimizer, field: str = "optimizer") -> list[tuple[str, Setting]]:
    """All settings, with the field of each."""
    groups = range(len(optimizer.groups))
    own = [(f"{field}.groups[{at}].name", setting_of_group(optimizer, at, field)) for at in groups]
    return [(f"{field}.name", setting_of(optimizer, field)), *own]


def check_optimizers(spec: JobSpec) -> None:
    """Raise ``SpecError`` unless the optimizers of a job exist, and can run where its parameters are."""
    check_optimizer(spec.optimizer)
    applied = "federated.server" if spec.federated else "optimizer"
    check_optimizer(spec.applied, applied)
    if spec.workers_hold:
        return
    for field, setting in settings(spec.applied, applied):
        if setting.entry is not None and not setting.entry.element_wise:
            allowed = [name for name, entry in OPTIMIZERS.items() if entry.element_wise]
            raise SpecError(
                field,
                setting.name,
                f"one of {', '.join(allowed)}, which treat each element by itself: servers hold blocks that are cut "
                f"without regard to tensors, and {setting.name} needs whole ones; with communication: all-reduce or "
                "server_mode: aggregating every worker holds them",
            )


def clips_by_norm(optimizer: Optimizer) -> bool:
    """Whether a step depends on the gradient norm of all parameters."""
    return optimizer.clip is not None and optimizer.clip.norm is not None


def is_proportional(optimizer: Optimizer) -> bool:
    """Whether n steps of 1/n equal one step: proportional to the gradient, and without momentum."""
    return all(
        each.entry is not None and each.entry.proportional and not each.options.get("momentum")
        for _, each in settings(optimizer)
    )


def knows_step(optimizer: Optimizer) -> bool:
    """Whether the effect of a fraction of a step is known: not for a user's own optimizer."""
    return all(each.entry is not None for _, each in settings(optimizer))


def is_stateless(optimizer: Optimizer) -> bool:
    """Whether there is no state besides the parameters: plain SGD."""
    return all(each.name == "sgd" and not each.options.get("momentum") for _, each in settings(optimizer))


def scaled(optimizer: Optimizer, times: float) -> Optimizer:
    """The same settings with scaled learning rates.

    Raises:
        SpecError: if a rate is a factory's own default.
    """

    def rate(field: str, setting: Setting) -> float:
        if setting.lr is None:
            raise SpecError(field, None, "a rate with fedavg-scaled-rate, which scales it")
        return setting.lr * times

    groups = [
        replace(group, lr=rate(f"optimizer.groups[{at}].lr", setting_of_group(optimizer, at)))
        for at, group in enumerate(optimizer.groups)
    ]
    return replace(optimizer, lr=rate("optimizer.lr", setting_of(optimizer)), groups=groups)


def describe_optimizers() -> list[dict[str, Any]]:
    """Every optimizer by name, as a form or a person needs it."""
    return [
        {"name": entry.name, "torch": entry.torch, "lr": entry.lr, "element_wise": entry.element_wise}
        | described(entry.options)
        for entry in OPTIMIZERS.values()
    ]


def _known(name: str, field: str) -> str:
    """A name as the table has it, or that of a factory."""
    if is_factory(name):
        return name
    lowered = name.lower().removeprefix("torch.optim.")
    if lowered in REFUSED:
        raise SpecError(field, name, f"another optimizer: {REFUSED[lowered]}")
    if lowered not in OPTIMIZERS:
        raise SpecError(field, name, f"one of {', '.join(OPTIMIZERS)}, or module:factory for one that you wrote")
    return lowered


def _setting(name: str, lr: float | None, options: dict[str, Any], field: str) -> Setting:
    entry = OPTIMIZERS.get(name)
    if entry is None:
        return Setting(name=name, lr=lr, options=options)
    checked = settings_from(name, entry.options, options, f"{field}.options")
    if isinstance(checked, SgdOptions) and checked.nesterov and (not checked.momentum or checked.dampening):
        raise SpecError(f"{field}.options.nesterov", True, "false without momentum, or with dampening")
    given = {option: getattr(checked, option) for option in options}
    return Setting(name=name, lr=entry.lr if lr is None else lr, options=given)


SHORT: Mapping[str, tuple[str, float]] = {
    "momentum": ("momentum", 0.0),
    "weight_decay": ("weight_decay", 0.0),
    "beta1": ("betas", 0.9),
    "beta2": ("betas", 0.999),
    "epsilon": ("eps", 1e-8),
}
"""Fields next to ``options``: the option that each sets, and the value that optimizers without it accept."""


def _short(optimizer: Optimizer, name: str, field: str) -> dict[str, Any]:
    """The options that are written as their own fields."""
    entry, found = OPTIMIZERS.get(name), dict[str, Any]()
    known = entry.options.__struct_fields__ if entry is not None else ("momentum", "weight_decay", "betas", "eps")
    for short, (option, usual) in SHORT.items():
        value = getattr(optimizer, short)
        if value is None or (option not in known and value == usual):
            continue
        if option not in known:
            raise SpecError(f"{field}.{short}", value, f"none with {name}, which has {', '.join(known)}")
        _check_once(option, optimizer.options, f"{field}.{short}", value)
        found[option] = value
    if "betas" in found:
        found["betas"] = tuple(usual if each is None else each for each, usual in _betas(optimizer))
    return found


def _betas(optimizer: Optimizer) -> list[tuple[float | None, float]]:
    return [(optimizer.beta1, SHORT["beta1"][1]), (optimizer.beta2, SHORT["beta2"][1])]


def _check_once(option: str, options: Mapping[str, Any], field: str, value: object) -> None:
    if option in options:
        raise SpecError(field, value, f"only one of {field} and options.{option}, which mean the same")
