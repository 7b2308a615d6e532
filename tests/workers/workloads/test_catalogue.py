import pytest

from controlplane.protocol.spec import SpecError, Workload
from workers.workloads.catalogue import catalogue, load_workload
from workers.workloads.shape import tensor_sizes


def test_every_entry_can_be_loaded_and_is_what_it_says() -> None:
    for entry in catalogue():
        workload = load_workload(Workload(name=entry.name, dataset=entry.dataset))
        assert (sum(tensor_sizes(workload)), workload.sample_count) == (entry.parameter_count, entry.sample_count)


def test_the_catalogue_names_models_with_their_sizes() -> None:
    assert [(e.name, e.dataset, e.parameter_count) for e in catalogue()] == [
        ("cnn", "digits", 6090),
        ("softmax-regression", "digits", 650),
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Workload(name="resnet"), "workload.name: found 'resnet', expected one of cnn, softmax-regression"),
        (Workload(name="cnn", dataset="cifar"), "workload.dataset: found 'cifar', expected one of digits"),
        (
            Workload(name="cnn", options={"depth": 3}),
            "workload.options: found {'depth': 3}, expected none: cnn has no options",
        ),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(spec: Workload, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_workload(spec)
    assert str(caught.value) == message
