"""DistributedDataParallel inside each party, geomx between them.

    geomx launch network=examples/one_worker_each.yaml -- \
        torchrun --standalone --nproc-per-node=2 examples/torch_ddp.py

Each party of that network has one worker, formed by the two processes that torchrun starts there.
Without ``geomx launch`` it is a job of one party.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import geomx.torch

BATCH = 128  # of all processes together


def main() -> None:
    """Train, and print the loss over all digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    targets = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    loss_of = nn.CrossEntropyLoss()

    hook = geomx.torch.PartyHook(model)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(hook, geomx.torch.PartyHook.average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    order = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        batch = torch.randint(len(inputs), (BATCH,), generator=order)
        mine = batch[hook.rank :: hook.processes]
        optimizer.zero_grad()
        loss_of(parallel(inputs[mine]), targets[mine]).backward()
        optimizer.step()

    if dist.get_rank() == 0:
        with torch.no_grad():
            print(f"loss {loss_of(model(inputs), targets).item():.6f}", flush=True)
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
