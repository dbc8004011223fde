"""The position of a worker in its job."""

from __future__ import annotations

from geomx.cluster import Party
from geomx.live.member import Member


class Place:
    """A worker's position among others.

    Attributes:
        member: Its membership.
    """

    member: Member

    @property
    def rank(self) -> int:
        """Position among the workers of this party."""
        return self._party().workers.index(self.member.node)

    @property
    def num_workers(self) -> int:
        """Number of workers of this party."""
        return len(self._party().workers)

    @property
    def global_rank(self) -> int:
        """Position among all workers, by which a script slices its data."""
        return self.member.spec.cluster.workers.index(self.member.node)

    @property
    def num_all_workers(self) -> int:
        """Number of workers of all parties together."""
        return len(self.member.spec.cluster.workers)

    def _party(self) -> Party:
        return self.member.spec.cluster.party_of(self.member.node)
