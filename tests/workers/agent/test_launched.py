import pytest

from workers.cli import Launched


def test_agents_of_a_launcher_have_names_and_tokens_of_their_own() -> None:
    third = Launched.by({"RANK": "3", "WORLD_SIZE": "4"})
    assert (third.named("host"), third.filled("@/run/token-{rank}")) == ("host-3", "@/run/token-3")


def test_an_agent_that_no_one_launched_is_as_it_was_called() -> None:
    alone = Launched.by({"RANK": "3"})
    assert (alone.named("host"), alone.filled("@token-{rank}"), alone.filled(None)) == ("host", "@token-{rank}", None)


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"},
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "3", "PMI_SIZE": "4"},
        {"JOB_COMPLETION_INDEX": "3"},
        {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
    ],
)
def test_every_launcher_s_rank_is_understood_and_torchrun_s_goes_before_srun_s(environment: dict[str, str]) -> None:
    assert Launched.by(environment).named("host") == "host-3"


def test_a_host_that_is_named_by_its_rank_needs_no_other_name() -> None:
    launched = Launched.by({"JOB_COMPLETION_INDEX": "3"})
    assert launched.named("train-3") == "train-3"
    assert launched.named("train-3-x7f2q") == "train-3-x7f2q"  # a pod's, which joins as nothing else
    assert launched.named("train-13") == "train-13-3"
