"""The workloads that ship with geomx, registered in the same way as external ones.

No other module imports them by name: the registry finds this module by its entry point. MXNet,
PyTorch and scikit-learn are imported only when a model is built, so that workloads without
gradients run where none of them is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geomx.plugin.hookspecs import hookimpl
from geomx.workloads.cnn import DigitsConfig, IdxConfig, digits_cnn, fashion_mnist, mnist
from geomx.workloads.profile import ProfileConfig, profile
from geomx.workloads.resnet50 import ResNet50Config, resnet50
from geomx.workloads.synthetic import SyntheticConfig, synthetic
from geomx.workloads.tiny import TinyConfig, tiny
from geomx.workloads.transformer import torch_transformer
from geomx.workloads.transformer_config import TransformerConfig


@hookimpl
def geomx_register(register: Callable[[str, str, type, Callable[[Any], Any]], None]) -> None:
    """Register the built-in workloads.

    Args:
        register: Called with kind, name, configuration class and factory of each.
    """
    register("workload", "digits_cnn", DigitsConfig, digits_cnn)
    register("workload", "mnist", IdxConfig, mnist)
    register("workload", "fashion_mnist", IdxConfig, fashion_mnist)
    register("workload", "profile", ProfileConfig, profile)
    register("workload", "resnet50", ResNet50Config, resnet50)
    register("workload", "synthetic", SyntheticConfig, synthetic)
    register("workload", "tiny", TinyConfig, tiny)
    register("workload", "torch_transformer", TransformerConfig, torch_transformer)
