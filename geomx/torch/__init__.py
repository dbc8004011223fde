"""PyTorch on the key-value store: wrap an optimizer, and a training loop runs in a geomx job.

`Optimizer` follows the job's sync policy: gradients are sent during the backward pass, and a
layer's next forward pass waits for that layer's own parameters. Each worker trains on its own
samples, such as ``samples[optimizer.rank :: optimizer.workers]``. `PartyHook` is for scripts that
keep DistributedDataParallel inside a party; both build on `TensorExchange`.

Example:
    >>> import torch
    >>> import geomx.torch
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = geomx.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    >>> model(torch.ones(4, 2)).square().mean().backward()
    >>> optimizer.step()
"""

from __future__ import annotations

from geomx.errors import ConfigError
from geomx.imports import without_collections

with without_collections():
    try:
        import torch as _torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError("torch", "missing", f"{error}: pip install 'geomx[torch]'") from error

    from geomx.live.torch_exchange import TensorExchange
    from geomx.torch.ddp import PartyHook
    from geomx.torch.optimizer import Optimizer

__all__ = ["Optimizer", "PartyHook", "TensorExchange"]
