"""The machine itself, with a driver that does at once what comes next."""

from controlplane.protocol.messages import IterationReport
from controlplane.protocol.worker import Step, WorkerMachine
from tests.contracts.script import Script, Stage, Where

STILL_S = 0.0
"""Its clock stands still."""


class Plain:
    """Plays one script."""

    def __init__(self, script: Script) -> None:
        self.stage = Stage(script)
        self.worker = WorkerMachine(lambda build: self.stage.take(build(0)))
        self._samples = 0

    def play(self) -> Stage:
        """Until the worker waits and the script is over."""
        while (orders := self.stage.next_at_rest()) is not None:
            self.worker.receive(orders)
            while (step := self.worker.next(STILL_S)) is not Step.WAIT:
                self._do(step)
        return self.stage

    def _do(self, step: Step) -> None:
        worker = self.worker
        if step is Step.PULL and self._is_owed_after("pull"):
            worker.pulled(STILL_S)
        elif step is Step.COMPUTE and self._compute():
            worker.computed(self._samples)
        elif step is Step.PUSH and self._is_owed_after("push"):
            self._push()
        elif step is Step.FINISH:
            worker.finished(model_saved=False)

    def _is_owed_after(self, where: Where, done: int = 1) -> bool:
        attempt = self.worker.attempt
        for orders in self.stage.moments(where, self.worker.iteration, done):
            self.worker.receive(orders)
        return self.worker.attempt == attempt

    def _compute(self) -> bool:
        """Sample by sample, one a second; whether the iteration is still owed."""
        worker, task = self.worker, self.worker.task
        assert task is not None
        self.stage.started.append(task)
        self._samples = 0
        while self._samples < task.most and not worker.is_cut:
            if task.budget_s is not None and self._samples >= task.budget_s:
                break
            self._samples += 1
            if not self._is_owed_after("compute", self._samples):
                return False
        return True

    def _push(self) -> None:
        worker, task = self.worker, self.worker.task
        assert task is not None
        if worker.term < self.stage.term:
            worker.refused()
            return
        self.stage.take(
            IterationReport(
                number=0,
                generation=worker.term[1],
                iteration=worker.iteration,
                samples=self._samples,
                position=task.position,
                loss=0.0,
                compute_s=0.0,
                push_s=0.0,
                pull_s=0.0,
                waiting_s=0.0,
                coordination_s=0.0,
                cpu=0.0,
                memory=0.0,
            )
        )
        worker.pushed()


def play(script: Script) -> Stage:
    """What it makes of ``script``."""
    return Plain(script).play()
