"""What would the example of DDP have learnt, had nobody interrupted it?

One process from the first epoch to the last, without any checkpoint: it takes the shares of all ranks one after the
other and averages their gradients, as DDP does between processes. Widths of the epochs are its arguments; prints
the loss of each. For a Python that has torch.
"""

from __future__ import annotations

import sys

import ddp  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]
from torch import nn


def main(widths: list[int]) -> None:
    torch.set_num_threads(1)
    net = ddp.network()
    optimizer = torch.optim.Adam(net.parameters(), lr=ddp.RATE)
    inputs, targets = ddp.data()
    for epoch, width in enumerate(widths):
        total = 0.0
        for shares in zip(*(ddp.indices(epoch, rank, width) for rank in range(width)), strict=True):
            optimizer.zero_grad()
            for share in shares:
                loss = nn.functional.mse_loss(net(inputs[share]), targets[share])
                (loss / width).backward()
                total += loss.item() * len(share) / ddp.SAMPLES
            optimizer.step()
        print(f"{total:.9f}")


if __name__ == "__main__":
    main([int(width) for width in sys.argv[1:]])
