"""The nodes of an experiment and the routes between them, as plain data."""

from geomx.cluster.nodes import (
    Cargo,
    Cluster,
    Direction,
    Link,
    LinkKind,
    NodeSpec,
    Party,
    Path,
    Role,
)

__all__ = [
    "Cargo",
    "Cluster",
    "Direction",
    "Link",
    "LinkKind",
    "NodeSpec",
    "Party",
    "Path",
    "Role",
]
