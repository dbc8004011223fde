"""Readers that turn a network file or graph into a `Cluster`, and bandwidth schedules."""
