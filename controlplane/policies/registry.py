"""The one table from a kind and a name to the policy.

It describes, checks and resolves choices. Importing it imports no policy: each is imported on its first use, since
some load torch. ``docs/design.md`` says how a policy is added.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.core.barriers import conflict
from controlplane.policies import parameters
from controlplane.protocol.base import Value
from controlplane.protocol.faults import fault_of
from controlplane.protocol.spec import Choice, Part, SpecError, Synchronization

QUESTIONS = {
    "batching": "How many samples each worker takes next.",
    "prediction": "How fast each worker will be in the coming iteration.",
    "barrier": "When a worker may start its next iteration.",
    "placement": "Which server holds which block of parameters.",
    "data": "Which samples a worker may draw.",
    "stragglers": "Which worker is slow, with the evidence.",
}


class Registration(Value, frozen=True, kw_only=True):
    """One policy: its name, its parameters, and where it is defined."""

    question: str
    name: str
    parameters: type[Part]
    path: str
    """``module:class``, imported on first use. Called with ``parameters``, if it has any, and its ``parts`` by name."""
    explanation: str
    paper: str = ""
    """The paper and section that define it; empty for a policy of Paceline's own."""
    parts: dict[str, str] = {}
    """Parameters that choose a policy themselves, or several in a list, and the question that they answer."""


class CatalogueEntry(Value, frozen=True, kw_only=True):
    """The information that a user or a form needs to choose and configure a policy."""

    question: str
    name: str
    explanation: str
    paper: str
    defaults: dict[str, Any]
    schema: dict[str, Any]
    """JSON schema of the parameters."""
    parts: dict[str, str]


REGISTRATIONS = (
    Registration(
        question="batching",
        name="uniform",
        parameters=parameters.NoParameters,
        path="controlplane.policies.batching.uniform:Uniform",
        explanation="The same share for all.",
        paper="the baseline",
    ),
    Registration(
        question="batching",
        name="lb-bsp-cpu",
        parameters=parameters.LbBspCpuParameters,
        path="controlplane.policies.batching.lb_bsp_cpu:LbBspCpu",
        explanation="Shares in proportion to predicted speed, decided for each iteration.",
        paper="LB-BSP 3.2, Alg. 1",
        parts={"predictor": "prediction", "shadows": "prediction"},
    ),
    Registration(
        question="batching",
        name="lb-bsp-gpu",
        parameters=parameters.LbBspGpuParameters,
        path="controlplane.policies.batching.lb_bsp_gpu:LbBspGpu",
        explanation="The fastest worker takes a step from the slowest, whatever their times depend on.",
        paper="LB-BSP 3.3, Alg. 2",
    ),
    Registration(
        question="batching",
        name="lb-bsp-federated",
        parameters=parameters.LbBspFederatedParameters,
        path="controlplane.policies.batching.lb_bsp_federated:LbBspFederated",
        explanation="Clients' batch sizes follow their smoothed speeds; local steps and learning rate are fixed.",
        paper="LB-BSP 3.5",
    ),
    Registration(
        question="batching",
        name="lb-bsp-linear",
        parameters=parameters.LbBspLinearParameters,
        path="controlplane.policies.batching.lb_bsp_linear:LbBspLinear",
        explanation="A line of time over share for each worker, and the shares with the least longest time.",
    ),
    Registration(
        question="batching",
        name="deadline",
        parameters=parameters.DeadlineParameters,
        path="controlplane.policies.batching.deadline:Deadline",
        explanation="A common time budget in which each worker processes what fits; for work that can be cut.",
        parts={"predictor": "prediction"},
    ),
    Registration(
        question="prediction",
        name="ema",
        parameters=parameters.EmaParameters,
        path="controlplane.policies.prediction.ema:Ema",
        explanation="Exponential moving average: robust to perturbations, slow to follow a lasting change.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="memoryless",
        parameters=parameters.NoParameters,
        path="controlplane.policies.prediction.memoryless:Memoryless",
        explanation="The speed of the last iteration.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="arima",
        parameters=parameters.ArimaParameters,
        path="controlplane.policies.prediction.arima:Arima",
        explanation="Extrapolates each worker's past speeds (p, d, q), fitted by recursive maximum likelihood.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="rnn",
        parameters=parameters.RecurrentParameters,
        path="controlplane.policies.prediction.rnn:Rnn",
        explanation="Plain recurrent network over past speeds, trained online.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="lstm",
        parameters=parameters.RecurrentParameters,
        path="controlplane.policies.prediction.lstm:Lstm",
        explanation="Long short-term memory network over past speeds, trained online.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="narx",
        parameters=parameters.RecurrentParameters,
        path="controlplane.policies.prediction.narx:Narx",
        explanation="Network over past speeds and past and coming CPU and memory, trained online.",
        paper="LB-BSP 3.2.2, Eq. 4",
    ),
    Registration(
        question="prediction",
        name="regression",
        parameters=parameters.RegressionParameters,
        path="controlplane.policies.prediction.regression:Regression",
        explanation="Log-linear in CPU and memory, learnt from all workers, with each one's own level: no warm-up.",
    ),
    Registration(
        question="barrier",
        name="bsp",
        parameters=parameters.NoParameters,
        path="controlplane.policies.barriers.bsp:Bsp",
        explanation="No worker starts an iteration before all have finished the one before.",
        paper="the baseline",
    ),
    Registration(
        question="barrier",
        name="asp",
        parameters=parameters.ArrivalParameters,
        path="controlplane.policies.barriers.asp:Asp",
        explanation="No worker waits; updates are applied as they arrive: see step_scale.",
        paper="the baseline; PSP 2.2",
    ),
    Registration(
        question="barrier",
        name="ssp",
        parameters=parameters.SspParameters,
        path="controlplane.policies.barriers.ssp:Ssp",
        explanation="A worker may be a few iterations ahead of the slowest.",
        paper="the baseline; PSP 2.2",
    ),
    Registration(
        question="barrier",
        name="pbsp",
        parameters=parameters.PbspParameters,
        path="controlplane.policies.barriers.psp:Pbsp",
        explanation="A worker goes on when none of a sample of the others is behind it.",
        paper="PSP 3, Alg. 1",
    ),
    Registration(
        question="barrier",
        name="pssp",
        parameters=parameters.PsspParameters,
        path="controlplane.policies.barriers.psp:Pssp",
        explanation="A worker goes on when none of a sample of the others is more than a few iterations behind it.",
        paper="PSP 3, Alg. 1",
    ),
    Registration(
        question="barrier",
        name="aggressive",
        parameters=parameters.AggressiveParameters,
        path="controlplane.policies.barriers.aggressive:Aggressive",
        explanation="When the fastest has finished and enough is processed, all stop and synchronise what they have.",
        paper="A-BSP 3.2, Alg. 1",
    ),
    Registration(
        question="barrier",
        name="backup",
        parameters=parameters.BackupParameters,
        path="controlplane.policies.barriers.backup:Backup",
        explanation="The first n of n + b workers make an iteration; the others drop it.",
        paper="redundant execution",
    ),
    Registration(
        question="placement",
        name="round-robin",
        parameters=parameters.RoundRobinParameters,
        path="controlplane.policies.placement.round_robin:RoundRobin",
        explanation="Servers take blocks in turn, the one with the fewest bytes first; to the letter: tensors in turn.",
        paper="PSLD 2.2, Table 1",
    ),
    Registration(
        question="placement",
        name="mxnet",
        parameters=parameters.MxnetParameters,
        path="controlplane.policies.placement.mxnet:Mxnet",
        explanation="Large tensors are split evenly over all servers, the others scattered by their position.",
        paper="PSLD 2.2, Table 2",
    ),
    Registration(
        question="placement",
        name="proportional",
        parameters=parameters.ProportionalParameters,
        path="controlplane.policies.placement.proportional:Proportional",
        explanation="Bytes in proportion to each server's measured speed, when one straggles.",
        paper="PSLD 6.1, the strawman",
    ),
    Registration(
        question="placement",
        name="psld",
        parameters=parameters.PsldParameters,
        path="controlplane.policies.placement.psld:Psld",
        explanation="Blocks go to a superior set of servers, a few explore; servers are added and left when it helps.",
        paper="PSLD 4, Alg. 1-3",
    ),
    Registration(
        question="placement",
        name="psld-lpt",
        parameters=parameters.PsldLptParameters,
        path="controlplane.policies.placement.psld_lpt:PsldLpt",
        explanation="The largest block first to the server predicted to finish it first, when that gains enough.",
    ),
    Registration(
        question="data",
        name="shared",
        parameters=parameters.NoParameters,
        path="controlplane.policies.data.shared:Shared",
        explanation="Every worker may draw any sample; all see one seeded permutation per pass.",
        paper="LB-BSP",
    ),
    Registration(
        question="data",
        name="rotation",
        parameters=parameters.RotationParameters,
        path="controlplane.policies.data.rotation:Rotation",
        explanation="Every worker has its own splits and goes on in them where it stopped.",
        paper="A-BSP 3.3.1",
    ),
    Registration(
        question="data",
        name="exchange",
        parameters=parameters.ExchangeParameters,
        path="controlplane.policies.data.exchange:Exchange",
        explanation="As rotation; the least and most processed splits swap places, or move to where they are needed.",
        paper="A-BSP 3.3.2, Alg. 2; LB-BSP 7",
    ),
    Registration(
        question="stragglers",
        name="evidence",
        parameters=parameters.EvidenceParameters,
        path="controlplane.policies.stragglers.evidence:Evidence",
        explanation="Flags workers and servers that are slow by the others' measure or their own, with cause and cost.",
    ),
)

Chosen = Choice | tuple[Choice, ...]
"""The form of a policy's part: one policy, or several."""

_TABLE = {(entry.question, entry.name): entry for entry in REGISTRATIONS}


def names(question: str) -> list[str]:
    """The registered policies of a kind, sorted."""
    return sorted(name for each, name in _TABLE if each == question)


def resolve(question: str, choice: Choice) -> Any:
    """The policy itself.

    Raises:
        SpecError: where there is no such policy, or its parameters are not allowed.
    """
    return _build(question, choice, field=_field_of(question))


def check(synchronization: Synchronization) -> None:
    """Whether a job can run with these choices: each is registered, its parameters are allowed, and all compose.

    Raises:
        SpecError: naming the field, its value and what is allowed.
    """
    kinds = {}
    for field in synchronization.__struct_fields__:
        entry, _, _ = _validate(field, getattr(synchronization, field), field=_field_of(field))
        kinds[field] = _class_of(entry)
    if (reason := conflict(kinds["batching"], kinds["barrier"], kinds["data"])) is not None:
        together = {field: getattr(synchronization, field).name for field in ("batching", "barrier", "data")}
        raise SpecError("synchronization", together, f"choices that go together: {reason}")


def catalogue() -> list[CatalogueEntry]:
    """Every policy, by question in the order of ``QUESTIONS``, then by name; then the rules of ``aggregation``."""
    order = list(QUESTIONS)
    policies = sorted(REGISTRATIONS, key=lambda e: (order.index(e.question), e.name))
    return [_describe(entry) for entry in (*policies, *_rules())]


def _rules() -> list[Registration]:
    """The rules of aggregation by name. They travel to servers as names, and have no parameters."""
    path = "controlplane.policies.aggregation.rules"
    rules = importlib.import_module(path).RULES
    return [
        Registration(
            question="aggregation",
            name=name,
            parameters=parameters.NoParameters,
            path=f"{path}:RULES",
            explanation=rules[name].explanation,
            paper=rules[name].paper,
        )
        for name in sorted(rules)
    ]


def predictors(batching: Choice) -> list[str]:
    """The names of the predictors of a batching policy, side by side; the one that is acted upon first comes first."""
    _, _, parts = _validate("batching", batching, field=_field_of("batching"))
    chosen = [one for part in parts.values() for one in (part if isinstance(part, tuple) else (part,))]
    return [choice.name for choice in chosen]


def _field_of(question: str) -> str:
    return f"synchronization.{question}"


def _build(question: str, choice: Choice, *, field: str) -> Any:
    entry, settings, parts = _validate(question, choice, field=field)
    policy = _class_of(entry)
    built = {part: _built(entry.parts[part], chosen, field=f"{field}.{part}") for part, chosen in parts.items()}
    own = {"parameters": settings} if set(settings.__struct_fields__) - parts.keys() else {}
    return policy(**own, **built)


def _class_of(entry: Registration) -> Any:
    module, _, name = entry.path.partition(":")
    return getattr(importlib.import_module(module), name)


def _built(question: str, chosen: Chosen, *, field: str) -> Any:
    if isinstance(chosen, Choice):
        return _build(question, chosen, field=field)
    return tuple(_build(question, one, field=f"{field}[{place}]") for place, one in enumerate(chosen))


def _validate(question: str, choice: Choice, *, field: str) -> tuple[Registration, Part, dict[str, Chosen]]:
    """The entry that ``choice`` names, its parameters as a value, and the choices among them."""
    entry = _TABLE.get((question, choice.name))
    if entry is None:
        raise SpecError(f"{field}.name", choice.name, f"one of {', '.join(names(question))}")
    settings = _settings(entry, choice.parameters, field=field)
    parts = {
        part: _parts(part_question, getattr(settings, part), field=f"{field}.{part}")
        for part, part_question in entry.parts.items()
    }
    return entry, settings, parts


def _settings(entry: Registration, given: Mapping[str, Any], *, field: str) -> Part:
    known = {info.name: info.type for info in msgspec.structs.fields(entry.parameters)}
    for name in given:
        if name not in known:
            allowed = f"a parameter of {entry.name}: {', '.join(known)}" if known else f"none: {entry.name} takes none"
            raise SpecError(f"{field}.{name}", name, allowed)
    values = {name: _convert(value, known[name], field=f"{field}.{name}") for name, value in given.items()}
    try:
        return entry.parameters(**values)
    except ValueError as error:
        # What a struct's own checks say about values that are each allowed but do not go together.
        raise SpecError(field, dict(given), str(error)) from None


def _convert(value: object, type_: Any, *, field: str) -> Any:
    try:
        return msgspec.convert(value, type_, strict=True)
    except msgspec.ValidationError as error:
        expected = fault_of(error).expected.replace("`str | object`", "a name, or a mapping with a name and parameters")
        raise SpecError(field, value, expected) from None


def _parts(question: str, value: str | Mapping[str, Any] | list[Any], *, field: str) -> Chosen:
    """The choice or choices within a choice, checked."""
    if isinstance(value, list):
        return tuple(_part(question, one, field=f"{field}[{place}]") for place, one in enumerate(value))
    return _part(question, value, field=field)


def _part(question: str, value: str | Mapping[str, Any], *, field: str) -> Choice:
    """A choice within a choice: a bare name, or written flat like the four choices themselves."""
    allowed = f"one of {', '.join(names(question))}"
    if isinstance(value, str):
        if value not in names(question):
            raise SpecError(field, value, allowed)
        return Choice(name=value)
    name = value.get("name")
    if not isinstance(name, str):
        raise SpecError(f"{field}.name", name, allowed)
    choice = Choice(name=name, parameters={key: given for key, given in value.items() if key != "name"})
    _validate(question, choice, field=field)
    return choice


def _describe(entry: Registration) -> CatalogueEntry:
    _, components = msgspec.json.schema_components([entry.parameters])
    return CatalogueEntry(
        question=entry.question,
        name=entry.name,
        explanation=entry.explanation,
        paper=entry.paper,
        defaults=msgspec.to_builtins(entry.parameters()),
        schema=components[entry.parameters.__name__],
        parts=entry.parts,
    )
