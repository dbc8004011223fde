"""Tensors of any framework as float32 vectors, and how MXNet is imported."""
