"""PyTorch's face of the key-value store: wrap an optimizer, and a training loop uses our clusters.

    import geomx.torch
    optimizer = geomx.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    inputs, targets = inputs[optimizer.rank :: optimizer.workers], ...

`Optimizer` follows the job's sync policy: gradients leave while the backward pass goes on, and a
layer's next forward pass waits for that layer's own parameters. `PartyHook` is for those who keep
DistributedDataParallel inside a party. `TensorExchange` is what both stand on.
"""

from __future__ import annotations

from geomx.errors import ConfigError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ConfigError("torch", "missing", f"{error}: pip install 'geomx[torch]'") from error

from geomx.torch.ddp import PartyHook
from geomx.torch.exchange import TensorExchange
from geomx.torch.optimizer import Optimizer

__all__ = ["Optimizer", "PartyHook", "TensorExchange"]
