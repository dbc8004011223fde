"""Where the time of a shard's round at a server goes: the parts of docs/metrics.md.

`geomx top` computes them between two readings of the metrics, and a live run for its whole time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geomx.results.rounding import rounded

PARTS = ("compute", "gather", "push", "held", "pull", "rest")


@dataclass(frozen=True)
class MeanRound:
    """The mean round of a server's shards, in seconds.

    The phases of a party are those of docs/metrics.md: until the first and until the last worker
    has contributed (`compute_s`, `gather_s`), until the party's sum has left (`push_s`), waiting at
    global servers for other parties (`held_s`), until the answer has left (`pull_s`), and the rest,
    propagation and handling (`rest_s`). Global servers have the first two. `last` is the child that
    was last most often, and `last_share` the share of rounds in which it was.
    """

    compute_s: float
    gather_s: float
    push_s: float | None
    held_s: float | None
    pull_s: float | None
    rest_s: float | None
    last: str
    last_share: float

    @classmethod
    def of(
        cls,
        rounds: float,
        phases: Mapping[str, float],
        answering_s: tuple[float, float, float],
        last: Mapping[str, float],
    ) -> MeanRound:
        """Return the mean of some rounds.

        Args:
            rounds: Their number, more than 0.
            phases: Seconds of all of them together in ``compute``, ``gather`` and, of a party,
                ``answer``.
            answering_s: The same of sending a party's sums, of waiting for other parties, and of
                sending the answers.
            last: By child, rounds that its contribution completed.
        """
        push_s = held_s = pull_s = rest_s = None
        if "answer" in phases:
            push_s, held_s, pull_s = (seconds / rounds for seconds in answering_s)
            rest_s = max(0.0, phases["answer"] / rounds - push_s - held_s - pull_s)
        who = max(last, key=lambda child: last[child], default="")
        return cls(
            compute_s=phases.get("compute", 0.0) / rounds,
            gather_s=phases.get("gather", 0.0) / rounds,
            push_s=push_s,
            held_s=held_s,
            pull_s=pull_s,
            rest_s=rest_s,
            last=who if last.get(who) else "",
            last_share=last.get(who, 0.0) / rounds,
        )

    @property
    def parts_s(self) -> tuple[float | None, ...]:
        """The durations in the order of `PARTS`."""
        return tuple(getattr(self, f"{part}_s") for part in PARTS)

    @property
    def whole_s(self) -> float:
        """From one round to the next."""
        return sum(part or 0.0 for part in self.parts_s)


class Servers:
    """What the nodes of a live run counted of rounds, and what their codecs keep at its end."""

    def __init__(self) -> None:
        self._nodes: dict[str, Mapping[str, Any]] = {}

    def add(self, node: str, counts: Mapping[str, Any]) -> None:
        """Add the counts of the latest process of a node (``stats`` of `geomx._core.Loop`)."""
        self._nodes[node] = counts

    def summary(self) -> dict[str, Any]:
        """Return ``mean_round`` and ``residual_norms`` for ``summary.json``, if they are known."""
        found = {
            "mean_round": {name: row for name in self._nodes if (row := self._mean_round(name))},
            "residual_norms": {
                name: norms
                for name, counts in self._nodes.items()
                if (norms := {k: rounded(v) for k, v in counts.get("residuals", {}).items() if v})
            },
        }
        return {key: value for key, value in found.items() if value}

    def _mean_round(self, name: str) -> dict[str, Any]:
        counts = self._nodes[name]
        rounds, phases = counts["node"]["rounds"], counts["rounds"].get("phases")
        if not rounds or not phases:
            return {}
        of_others = [other for who, other in self._nodes.items() if who != name]
        held_s = sum(
            other["rounds"].get("children", {}).get(name, (0, 0.0))[1] for other in of_others
        )
        pull_s = sum(
            link["pull_values"][1]
            for other in of_others
            for link in other["links"]
            if link["peer"] == name
        )
        push_s = sum(link["push_values"][1] for link in counts["links"])
        last = {child: count for child, (count, _) in counts["rounds"]["children"].items()}
        mean = MeanRound.of(rounds, phases, (push_s, held_s, pull_s), last)
        parts = zip(PARTS, mean.parts_s, strict=True)
        return {
            "shard_rounds": rounds,
            **{f"{part}_s": rounded(seconds) for part, seconds in parts if seconds is not None},
            "last": mean.last,
            "last_share": rounded(mean.last_share),
        }
