"""Drives real trainers of a job without servers, as threads; each generation is a placement of its own."""

from msgspec.structs import replace

from controlplane.protocol.messages import WorkerHello
from controlplane.protocol.orders import Member, Orders, PeerAddress, Placement
from tests.workers.driver import Cluster, MemoryWorkerLink


class ReducingCluster(Cluster):
    """As ``Cluster``, for ``communication: all-reduce``."""

    def start(self) -> None:
        """Start the workers, tell each where the others are, give the first orders."""
        for member in self.roster:
            self.add_worker(member.rank, member.instance)
        self.convene(self.roster, 0)

    def convene(self, members: list[Member], iteration: int) -> None:
        """From ``iteration`` on, or where they are past it, ``members`` count: the present generation meets."""
        self.roster = members
        for member in members:
            link = self.worker(member.rank).link
            link.place(self.placement(member.rank, member.instance))
        for member in members:
            done = [report.iteration for report in self.reports(member.rank)]
            self.grant(member.rank, max([iteration, *(at + 1 for at in done)]))

    def introduce(self, rank: int, instance: str, link: MemoryWorkerLink) -> None:
        """Where the others are is told when all have said where."""

    def placement(self, rank: int, instance: str) -> Placement:
        peers = []
        for member in self.roster:
            hello = self.worker(member.rank).link.await_said(WorkerHello)[0]
            peers.append(PeerAddress(rank=member.rank, host=hello.host, port=hello.port))
        version = self.generation
        return Placement(incarnation=0, version=version, generation=self.generation, blocks=[], servers=[], peers=peers)

    def orders(self, rank: int, iteration: int) -> Orders:
        return replace(super().orders(rank, iteration), placement_version=self.generation)
