"""The demo's second half: what the scripts print, how it is judged, and how few lines they differ in."""

from pathlib import Path

import pytest

from controlplane.api.demo.attached import (
    LINES,
    PACED,
    PLAIN,
    Epoch,
    ScriptRun,
    examples,
    judge_scripts,
    lines_changed,
    shown_command,
    torchrun,
)


def script(label: str, *seconds: float, accuracy: float = 0.95) -> ScriptRun:
    made = ScriptRun(label=label)
    made.epochs += [
        Epoch(number=number, loss=0.5, accuracy=accuracy, iteration_s=each) for number, each in enumerate(seconds, 1)
    ]
    return made


def test_the_paced_example_differs_in_a_few_lines() -> None:
    assert 0 < lines_changed(examples() / PLAIN, examples() / PACED) <= LINES


def test_the_plain_example_is_an_ordinary_script() -> None:
    text = (examples() / PLAIN).read_text()
    assert "paceline" not in text
    for part in ("AdamW", "autocast", "GradScaler", "BatchNorm", "clip_grad_norm_", "CosineAnnealingLR", "no_sync"):
        assert part in text
    assert "num_workers=2" in text
    assert "BATCH, ACCUMULATE = 64, 2" in text


def test_lines_are_counted_as_people_would(tmp_path: Path) -> None:
    plain, paced = tmp_path / "a.py", tmp_path / "b.py"
    plain.write_text("a\nb\nc\nd\n")
    paced.write_text("a\n\nB\nnew\nc\nd\n")
    assert lines_changed(plain, paced) == 2
    assert lines_changed(plain, plain) == 0


def test_what_a_script_prints_is_read_once() -> None:
    run = ScriptRun(label="plain")
    line = "epoch {}: loss 0.500, accuracy 0.9000, 0.2500 s/iteration\n"
    assert [epoch.number for epoch in run.read(f"warning\n{line.format(1)}")] == [1]
    assert [epoch.number for epoch in run.read(f"warning\n{line.format(1)}{line.format(2)}epoch 3: lo")] == [2]
    assert (run.iteration_s, run.accuracy) == (0.25, 0.9)


def test_the_second_half_of_the_epochs_counts() -> None:
    bars = judge_scripts(script("plain", 0.9, 0.25, 0.25, 0.25), script("paced", 0.9, 0.3, 0.1, 0.1), 5)
    assert [bar.holds for bar in bars] == [True] * 4
    assert bars[0].sentence == "iteration time of the paced script over the plain one's: 0.400, expected at most 0.45"


@pytest.mark.parametrize(
    ("paced", "changed", "failing"),
    [
        (script("paced", 0.2), 5, 0),
        (script("paced", 0.1, accuracy=0.92), 5, 1),
        (script("paced", 0.1, accuracy=0.98), 5, 2),
        (script("paced", 0.1), 9, 3),
    ],
)
def test_each_promise_can_fail(paced: ScriptRun, changed: int, failing: int) -> None:
    held = [bar.holds for bar in judge_scripts(script("plain", 0.25), paced, changed)]
    assert not held[failing]


def test_a_command_is_shown_as_people_would_type_it() -> None:
    assert shown_command(torchrun(examples() / PLAIN, 9)) == (
        "torchrun --standalone --nproc-per-node 4 examples/emulate.py 1000,1000,500,250 examples/train.py --epochs 9"
    )
