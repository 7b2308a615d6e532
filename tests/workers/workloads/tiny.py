"""Every workload of the catalogue, small enough to be trained in a moment, with an optimizer that suits it."""

from typing import Any

from controlplane.protocol.training import Optimizer, Workload

ADAM = Optimizer(name="adam", lr=0.005)
GENTLE = Optimizer(name="adam", lr=0.002)
SMALL: dict[str, Any] = {"samples": 120, "noise": 0.3}

TINY: dict[str, tuple[Workload, Optimizer]] = {
    spec.name: (spec, optimizer)
    for spec, optimizer in (
        (Workload(name="softmax-regression"), Optimizer(lr=0.5)),
        (
            Workload(name="logistic-regression", dataset="urls-like", data={"samples": 500, "features": 300}),
            Optimizer(name="adagrad", lr=0.5),
        ),
        (Workload(name="linear-svm", dataset="wine"), Optimizer(lr=0.1)),
        (Workload(name="ridge", dataset="diabetes"), Optimizer(lr=0.1)),
        (Workload(name="lasso", dataset="lines", data={"samples": 300}), Optimizer(lr=0.1)),
        (Workload(name="k-means"), Optimizer()),
        (Workload(name="als", dataset="movielens-like", data={"users": 100, "items": 40}), Optimizer()),
        (Workload(name="mlp", dataset="breast-cancer", options={"hidden": [16, 8]}), ADAM),
        (Workload(name="cnn"), Optimizer(lr=0.1, momentum=0.9)),
        (Workload(name="lenet-5", dataset="mnist-like", data=SMALL), ADAM),
        (Workload(name="cifarnet", dataset="cifar-like", data=SMALL), GENTLE),
        (
            Workload(name="resnet", dataset="cifar-like", options={"depth": 8, "width": 8}, data=SMALL),
            Optimizer(name="adam", lr=0.02),
        ),
        (Workload(name="femnist-cnn", dataset="digits"), Optimizer(name="adam", lr=0.001)),
        (Workload(name="lstm", dataset="keywords-like", data=SMALL), Optimizer(name="adam", lr=0.02)),
        (Workload(name="vgg16-shape", dataset="none", options={"scale": 1e-4}), Optimizer()),
        (Workload(name="resnet50-shape", dataset="none", options={"scale": 1e-4}), Optimizer()),
        (Workload(name="alexnet-shape", dataset="none", options={"scale": 1e-4}), Optimizer()),
    )
}
