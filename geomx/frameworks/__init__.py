"""Conversion of any framework's tensors to float32 vectors, and the import of MXNet."""
