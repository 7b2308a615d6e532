import importlib
import pkgutil
import subprocess
import sys
from typing import get_args

import msgspec
import pytest

from controlplane.core.barriers import AsyncBarrier, Barrier
from controlplane.core.choices import Batching, ConvergenceGuard, DataPolicy, Detector, Pilot, PlacementPolicy
from controlplane.policies import catalogue, registry
from controlplane.policies.catalogue.prediction import ArimaParameters, EmaParameters
from controlplane.policies.catalogue.stragglers import EvidenceParameters
from controlplane.policies.prediction.ema import Ema
from controlplane.policies.prediction.interface import Measured, Predictor
from controlplane.policies.stragglers.evidence import Evidence
from controlplane.protocol.autopilot import BALANCING
from controlplane.protocol.spec import Choice, SpecError, Synchronization, parse_spec
from controlplane.protocol.training import Aggregation
from paceline.cli.run import POSSIBLE
from tests.policies.cluster import resolve

INTERFACES = {
    "batching": Batching,
    "prediction": Predictor,
    "barrier": Barrier,
    "placement": PlacementPolicy,
    "data": DataPolicy,
    "stragglers": Detector,
    "autopilot": Pilot,
    "guard": ConvergenceGuard,
}
HEAVY = "torch django celery channels redis numpy asyncio"


def one_of(question: str) -> str:
    return f"one of {', '.join(registry.names(question))}"


def batching(name: str, **parameters: object) -> Synchronization:
    return Synchronization(batching=Choice(name=name, parameters=parameters))


def test_importing_the_registry_loads_every_catalogue_but_no_policy_and_no_framework() -> None:
    script = (
        "import sys; before = set(sys.modules); import controlplane.policies.registry; "
        "new = set(sys.modules) - before; "
        f"print(*sorted(new & set({HEAVY!r}.split())), "
        "*sorted(name for name in new if name.startswith('controlplane.policies.')))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    own = {f"controlplane.policies.{name}" for name in ("catalogue", "entries", "registry")}
    catalogues = {f"{catalogue.__name__}.{module.name}" for module in pkgutil.iter_modules(catalogue.__path__)}
    assert run.stdout.split() == sorted(own | catalogues)


@pytest.mark.parametrize("entry", registry.REGISTRATIONS, ids=lambda entry: f"{entry.question}-{entry.name}")
def test_a_policy_is_registered_in_the_catalogue_named_like_its_package(entry: registry.Registration) -> None:
    package = entry.path.split(".")[2]
    listed = importlib.import_module(f"controlplane.policies.catalogue.{package}").REGISTRATIONS
    assert entry in listed
    assert {other.question for other in listed} == {entry.question}


@pytest.mark.parametrize("entry", registry.REGISTRATIONS, ids=lambda entry: f"{entry.question}-{entry.name}")
def test_every_entry_resolves_by_its_bare_name_to_a_policy_of_that_name(entry: registry.Registration) -> None:
    policy = resolve(entry.question, entry.name)
    interface = INTERFACES[entry.question] if getattr(policy, "synchronous", True) else AsyncBarrier
    members = {name for name in {**vars(interface), **interface.__annotations__} if not name.startswith("_")}
    assert (policy.name, members - set(dir(policy))) == (entry.name, set())


def test_a_choice_within_a_choice_is_a_name_or_a_name_with_parameters() -> None:
    by_name = resolve("batching", "lb-bsp-cpu", predictor="ema", shadows=["memoryless", {"name": "arima", "d": 1}])
    assert by_name.predictor == Ema(parameters=EmaParameters(alpha=0.2))
    assert [shadow.name for shadow in by_name.shadows] == ["memoryless", "arima"]
    assert by_name.shadows[1].parameters == ArimaParameters(d=1)
    chosen = resolve("batching", "lb-bsp-cpu", predictor={"name": "ema", "alpha": 0.5})
    assert chosen.predictor == Ema(parameters=EmaParameters(alpha=0.5))


def test_a_predictor_cannot_be_its_own_shadow() -> None:
    with pytest.raises(SpecError) as raised:
        resolve("batching", "lb-bsp-cpu", predictor="ema", shadows=[{"name": "ema", "alpha": 0.5}])
    assert raised.value.expected == "each predictor once (found ema, ema)"


def test_parameters_that_are_given_replace_their_defaults_only() -> None:
    assert resolve("stragglers", "evidence", window=20, guard=0) == Evidence(
        parameters=EvidenceParameters(window=20, guard=0)
    )


def test_the_default_choices_are_allowed() -> None:
    registry.check(Synchronization())


def test_a_choice_from_a_document_is_checked_as_it_was_written() -> None:
    document = {
        "name": "digits",
        "workload": "softmax-regression",
        "workers": 4,
        "batch_size": 64,
        "stop": {"iterations": 9},
        "synchronization": {"batching": {"name": "lb-bsp-cpu", "predictor": "oracle"}},
    }
    with pytest.raises(SpecError) as raised:
        registry.check(parse_spec(document).synchronization)
    assert str(raised.value) == f"synchronization.batching.predictor: found 'oracle', expected {one_of('prediction')}"


@pytest.mark.parametrize(
    ("synchronization", "field", "found", "expected"),
    [
        (batching("lb-bsp"), "batching.name", "lb-bsp", one_of("batching")),
        (Synchronization(barrier=Choice(name="tsp")), "barrier.name", "tsp", one_of("barrier")),
        (batching("uniform", size=3), "batching.size", "size", "none: uniform takes none"),
        (
            batching("lb-bsp-cpu", alpha=3),
            "batching.alpha",
            "alpha",
            "a parameter of lb-bsp-cpu: predictor, shadows, score_every, literal, objective, slack",
        ),
        (
            batching("lb-bsp-cpu", predictor=3),
            "batching.predictor",
            3,
            "a name, or a mapping with a name and parameters, got `int`",
        ),
        (
            batching("lb-bsp-cpu", predictor={"alpha": 0.5}),
            "batching.predictor.name",
            None,
            one_of("prediction"),
        ),
        (
            batching("lb-bsp-cpu", predictor={"name": "sma"}),
            "batching.predictor.name",
            "sma",
            one_of("prediction"),
        ),
        (
            batching("lb-bsp-cpu", predictor={"name": "ema", "alpha": 1.5}),
            "batching.predictor.alpha",
            1.5,
            "`float` <= 1.0",
        ),
        (
            batching("lb-bsp-cpu", predictor={"name": "ema", "alpha": True}),
            "batching.predictor.alpha",
            True,
            "`float`, got `bool`",
        ),
    ],
)
def test_a_choice_that_is_not_allowed_names_field_found_and_allowed(
    synchronization: Synchronization, field: str, found: object, expected: str
) -> None:
    with pytest.raises(SpecError) as raised:
        registry.check(synchronization)
    error = raised.value
    assert (error.field, error.found, error.expected) == (f"synchronization.{field}", found, expected)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"slow": 1.1}, "raised of at most slow, which is 1.1"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused_with_the_cure(
    parameters: dict[str, object], expected: str
) -> None:
    with pytest.raises(SpecError) as raised:
        resolve("stragglers", "evidence", **parameters)
    assert (raised.value.field, raised.value.expected) == ("synchronization.stragglers", expected)


def test_policies_are_compared_by_default_unless_they_are_declared_otherwise() -> None:
    compared = registry.compared()
    named = {name for each in compared.values() for name in (each.batching.name, each.barrier.name)}
    every = {*registry.names("batching"), *registry.names("barrier")}
    assert every - named == {"deadline", "lb-bsp-federated", "lb-bsp-gpu", "pssp"}
    for synchronization in compared.values():
        registry.check(synchronization)


def test_two_policies_that_are_compared_have_the_same_label_only_where_they_are_the_same() -> None:
    labels = [
        (entry.compared_as or entry.name, Synchronization(**{entry.question: chosen}))
        for entry in registry.REGISTRATIONS
        if entry.question in registry.COMPARED and entry.compared is not None
        for chosen in [Choice(name=entry.name, parameters=entry.compared)]
    ]
    assert all(registry.compared()[label] == synchronization for label, synchronization in labels)


def test_an_autopilot_may_choose_by_default_the_batching_that_is_compared_by_default() -> None:
    """Where another one is to be tried in a simulation only, declare both apart."""
    compared = registry.compared().values()
    usual = Synchronization()
    assert set(map(str, BALANCING)) == {str(each.batching) for each in compared if each.barrier == usual.barrier}


def test_the_help_of_paceline_run_names_the_batching_that_a_script_can_have() -> None:
    attached = parse_spec({"name": "digits", "launch": "attached", "workers": 4, "batch_size": 64})

    def is_possible(name: str) -> bool:
        chosen = msgspec.structs.replace(attached, synchronization=batching(name))
        return registry.refusal(chosen) is None

    assert list(POSSIBLE) == [name for name in registry.names("batching") if is_possible(name)]


def test_the_catalogue_lists_every_policy_with_schema_and_defaults() -> None:
    entries = {(entry.question, entry.name): entry for entry in registry.catalogue()}
    questions = [*registry.QUESTIONS, "aggregation"]
    assert list(entries) == sorted(entries, key=lambda entry: (questions.index(entry[0]), entry[1]))
    assert set(entries) == {
        *((question, name) for question in registry.QUESTIONS for name in registry.names(question)),
        *(("aggregation", name) for name in get_args(Aggregation)),
    }
    ema = entries["prediction", "ema"]
    assert (ema.defaults, ema.schema["properties"]) == (
        {"alpha": 0.2},
        {
            "alpha": {
                "description": "Weight of the latest observation.",
                "type": "number",
                "exclusiveMinimum": 0.0,
                "maximum": 1.0,
                "default": 0.2,
            }
        },
    )
    assert entries["batching", "lb-bsp-cpu"].parts == {"predictor": "prediction", "shadows": "prediction"}


@pytest.mark.parametrize("entry", registry.catalogue(), ids=lambda entry: f"{entry.question}-{entry.name}")
def test_every_parameter_is_described_and_every_entry_is_json(entry: registry.CatalogueEntry) -> None:
    assert msgspec.json.decode(msgspec.json.encode(entry), type=registry.CatalogueEntry) == entry
    assert entry.schema["properties"].keys() == entry.defaults.keys()
    assert all(parameter["description"] for parameter in entry.schema["properties"].values())
    assert entry.explanation.endswith(".")


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"barrier": "backup", "data": "rotation"}, "barrier backup drops the updates of late workers, and with data "),
        ({"batching": "deadline", "barrier": "asp"}, "with barrier asp workers are not in the same iteration"),
        ({"batching": "deadline", "barrier": "pssp"}, "with barrier pssp workers are not in the same iteration"),
        ({"batching": "deadline", "barrier": "aggressive"}, "both batching deadline and barrier aggressive decide"),
        ({"batching": "deadline", "barrier": "backup"}, "would drop updates that no worker has to wait for"),
    ],
)
def test_choices_that_contradict_each_other_are_refused_with_the_reason(chosen: dict[str, str], why: str) -> None:
    with pytest.raises(SpecError) as caught:
        registry.check(Synchronization(**{question: Choice(name=name) for question, name in chosen.items()}))
    assert caught.value.field == "synchronization"
    assert caught.value.expected.startswith("choices that go together: ")
    assert why in caught.value.expected


def test_the_default_of_every_question_can_be_submitted() -> None:
    registry.check(Synchronization())


@pytest.mark.parametrize("name", ["narx", "lstm", "rnn"])
@pytest.mark.parametrize(("look_back", "samples"), [(20, 20), (20, 21), (20, 22), (18, 20)])
def test_a_predictor_that_can_never_be_trained_is_refused_with_the_cure(name, look_back, samples) -> None:
    needed = f"samples of at least {look_back + 3}, required by a look_back of {look_back}"
    with pytest.raises(SpecError, match=needed):
        resolve("prediction", name, look_back=look_back, samples=samples)


@pytest.mark.parametrize("name", ["narx", "lstm", "rnn"])
def test_the_fewest_samples_that_are_accepted_can_be_trained_on(name) -> None:
    predictor = resolve("prediction", name, look_back=17, samples=20)
    state = predictor.start()
    for k in range(20):
        state = predictor.observe({0: Measured(speed=100.0 + k % 3, cpu=0.1, memory=0.2)}, state)
    state, lesson = predictor.request_lesson(state)
    weights, error = predictor.fit(lesson.data, 0)
    assert weights
    assert error >= 0.0
