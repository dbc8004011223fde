"""A transformer of about 10 million parameters that learns to predict random tokens.

python benchmarks/shadows/transformer.py --plain    # PyTorch alone
geomx simulate network=two_parties -- python benchmarks/shadows/transformer.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import geomx.torch

TOKENS, WIDTH, LAYERS, HEADS, LENGTH = 4096, 384, 4, 6, 128


class Transformer(nn.Module):
    """Causal, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        )
        self.output = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token at each position."""
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.output(hidden)


def main() -> None:
    """Train, and print the number of parameters and the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--plain", action="store_true", help="PyTorch alone, without geomx")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Transformer()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rank = 0
    if not options.plain:
        optimizer = geomx.torch.Optimizer(optimizer, model, steps=options.steps)
        rank = optimizer.rank
    data = torch.Generator().manual_seed(rank)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(options.steps):
        tokens = torch.randint(TOKENS, (options.batch, LENGTH + 1), generator=data)
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    elements = sum(parameter.numel() for parameter in model.parameters())
    print(f"{elements:,} parameters, last loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
