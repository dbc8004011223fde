"""From a network file, or any graph, to a `Cluster`; how bandwidths change over time."""
