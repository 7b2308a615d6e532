"""Learning rates that follow the batch are the script's own outside of a step, whatever the step does."""

from typing import Any

import pytest
import torch

from paceline.rates import follow_batch


class Failing(torch.optim.SGD):
    """Raises in its step where told to; keeps the rates that its steps had."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        self.seen = [group["lr"] for group in self.param_groups]
        if self.fails:
            raise RuntimeError("out of memory")
        return super().step(closure)


def followed() -> Failing:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = Failing([weight], 0.1)
    optimizer.seen = []
    return optimizer


@pytest.mark.parametrize("schedules_first", [False, True])
def test_a_step_that_raises_leaves_the_scripts_learning_rate(schedules_first: bool) -> None:
    optimizer = followed()
    if schedules_first:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        follow_batch(optimizer, lambda: 4.0)
    else:
        follow_batch(optimizer, lambda: 4.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer.fails = False
    optimizer.step()
    schedule.step()
    optimizer.step()
    assert (optimizer.seen, optimizer.param_groups[0]["lr"]) == ([0.2], 0.05)


def test_rates_are_not_multiplied_twice_where_a_library_replaced_the_step() -> None:
    optimizer = followed()
    original = optimizer.step
    follow_batch(optimizer, lambda: 4.0)
    optimizer.step = original
    optimizer.fails = True
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            optimizer.step()
        assert optimizer.seen == [0.4]


def test_an_optimizer_that_is_named_twice_is_multiplied_once() -> None:
    optimizer = followed()
    follow_batch(optimizer, lambda: 4.0)
    follow_batch(optimizer, lambda: 2.0)
    optimizer.step()
    assert (optimizer.seen, optimizer.param_groups[0]["lr"]) == ([0.2], 0.1), "by the last"


def test_closures_and_saved_states_are_as_before() -> None:
    optimizer = followed()
    follow_batch(optimizer, lambda: 2.0)
    assert optimizer.step(lambda: 7.0) == 7.0
    assert (optimizer.seen, optimizer.param_groups[0]["lr"]) == ([0.2], 0.1)
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.1
