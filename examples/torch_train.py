"""A PyTorch training script, alone or in several data centres: handwritten digits, a small network.

    python examples/torch_train.py --plain                                     # without geomx
    python examples/torch_train.py                                             # one worker
    geomx launch network=two_parties -- python examples/torch_train.py         # four, two parties
    geomx launch network=two_parties +sync=hfa -- python examples/torch_train.py

With synchronous exchange of gradients (the first three) all end with the same loss: four workers on
a quarter of each batch are equivalent to one worker on the whole batch.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import geomx.torch

BATCH = 128  # of all workers together


def main() -> None:
    """Train, and print the loss over all digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="PyTorch alone, without geomx")
    options = parser.parse_args()

    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    targets = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    loss_of = nn.CrossEntropyLoss()

    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rank, workers = 0, 1
    if not options.plain:
        optimizer = geomx.torch.Optimizer(optimizer, model, steps=options.steps)
        rank, workers = optimizer.rank, optimizer.workers

    order = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        batch = torch.randint(len(inputs), (BATCH,), generator=order)
        mine = batch[rank::workers]
        optimizer.zero_grad()
        loss_of(model(inputs[mine]), targets[mine]).backward()
        optimizer.step()

    with torch.no_grad():
        print(f"loss {loss_of(model(inputs), targets).item():.6f}", flush=True)


if __name__ == "__main__":
    main()
