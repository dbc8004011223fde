"""The edges of the simulated WAN: a networkx graph whose attributes act on the simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self

import numpy as np
from networkx.classes.reportviews import OutEdgeView

from geomx.errors import near
from geomx.network.schedules import EDGE_CHANGES
from geomx.network.validators import MOST_MS
from geomx.scenario.places import Edge, find_edge
from geomx.sim.numbers import as_number

Change = Callable[[Edge, dict[str, Any]], None]

MBPS, DELAY, LOSS, UP = "bandwidth_mbps", "delay_ms", "loss", "up"
SETTABLE = (MBPS, DELAY, LOSS, UP)


class EdgeData(dict[str, Any]):
    """The attributes of one directed edge. Assigning to one changes the edge from now on.

    Attributes of its bandwidth over time (``trace``, ``redraw``, ``outages``) are removed when the
    bandwidth is set, and cannot be set.
    """

    def __init__(self, edge: Edge, data: Mapping[str, Any], change: Change) -> None:
        super().__init__(data, up=True)
        self._edge, self._change = edge, change

    def __setitem__(self, key: str, value: Any) -> None:
        """Change the edge."""
        self._change(self._edge, {key: value})

    def update(self, *given: Any, **more: Any) -> None:
        """Change several attributes at once."""
        self._change(self._edge, dict(*given, **more))

    def __ior__(self, given: Any) -> Self:  # type: ignore[override, misc]
        """Change several attributes at once."""
        self.update(given)
        return self

    def keep(self, values: Mapping[str, Any]) -> None:
        """Store values that are in force already."""
        if MBPS in values:
            for name in (*EDGE_CHANGES, "unlimited"):
                super().pop(name, None)
        super().update(values)
        if self.get(MBPS) == math.inf:  # as in network files, which have no infinity
            super().pop(MBPS)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        """Copies are plain dicts: networkx copies attributes to graphs that act on nothing."""
        return dict, (dict(self),)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("attributes of an edge can be set, not removed")

    __delitem__ = pop = popitem = clear = setdefault = _refuse


class WanEdges(OutEdgeView):  # type: ignore[misc]  # networkx has no types
    """networkx's view of the edges, which also takes the names of sites for those of routers."""

    __slots__ = ()

    def __getitem__(self, edge: Edge) -> EdgeData:
        """Return the attributes of an edge.

        Args:
            edge: Where it begins and ends.

        Raises:
            KeyError: There is no such edge.
        """
        try:
            source, target = find_edge(self._graph, *edge)
        except ValueError as error:
            raise KeyError(str(error)) from None
        data: EdgeData = self._adjdict[source][target]
        return data

    def __setitem__(self, edge: Edge, data: EdgeData) -> None:
        """Accept the attributes that an edge has, as ``|=`` assigns them.

        Args:
            edge: Where it begins and ends.
            data: Its attributes.

        Raises:
            TypeError: They are others.
        """
        if data is not self[edge]:
            raise TypeError("attributes of an edge can be set, not replaced")


def checked(edge: Edge, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return new attributes of an edge as numbers.

    Raises:
        ValueError: One is unknown or out of range; the message names edge, attribute and value.
    """
    there = f"{edge[0]} -> {edge[1]}"
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name not in SETTABLE:
            raise ValueError(f"{name}={value!r} of edge {there}: {near(name, SETTABLE)}")
        if name == UP:
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name}={value!r} of edge {there}: must be True or False")
            result[name] = bool(value)
            continue
        number = as_number(value)
        most, bound = {
            MBPS: (math.inf, "0 or more Mbit/s; math.inf is no limit"),
            DELAY: (MOST_MS, f"0 to {MOST_MS:,.0f} ms, which is an hour"),
            LOSS: (math.nextafter(1.0, 0.0), "at least 0 and below 1, the share of packets"),
        }[name]
        if not 0 <= number <= most:
            raise ValueError(f"{name}={value!r} of edge {there}: must be {bound}")
        result[name] = number
    return result
