"""A worker of PyTorch's gloo: averages tensors with its ring.

Arguments: rank, and the port of the store through which the workers meet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from rounds import measure, task, zeros


def main() -> None:
    rank, port = map(int, sys.argv[1:])
    todo = task()
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(array) for array in zeros(todo["sizes"])]
    began = time.monotonic()
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=todo["workers"]
    )

    def average(tensors: Sequence[Any]) -> None:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    measure(rank, dist.barrier, average, tensors, began, lambda tensor: tensor.numpy())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
