"""Random experiments, run simulated and live and compared: the parts of ``benchmarks/fidelity``."""
