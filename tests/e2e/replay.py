"""What would the example of DDP have learnt, had nobody interrupted it?

One process from the first step to the last, without any checkpoint: it takes the shares of all ranks one after the
other and averages their gradients, as DDP does between processes. Its arguments are the number of epochs and, for each
attempt, its width and where it began: `2@0.0 1@3.128` is two ranks, then one after 128 samples of the fourth epoch.
Prints the loss of each epoch. For a Python that has torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import ddp  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]
from torch import nn

from swell_sdk.environment import read_environment
from swell_sdk.run import Run
from swell_sdk.torch import ResumableSampler

Attempt = tuple[tuple[int, int], int]  #: epochs and samples that were done when it began; its width


def sampler(epoch: int, samples: int, rank: int, width: int) -> Any:
    """Of one rank that begins there."""
    told = {"EPOCHS_DONE": str(epoch), "RANK": str(rank), "WORLD_SIZE": str(width), "SWELL_CHECKPOINTS": "/"}
    if samples:
        told |= {"SWELL_CHECKPOINT": "/", "SWELL_STEPS_DONE": "1", "SWELL_SAMPLES_DONE": str(samples)}
    return ResumableSampler(ddp.SAMPLES, ddp.BATCH // width, run=Run(read_environment(told)))


def steps(attempts: list[Attempt], epoch: int) -> Iterator[tuple[list[int], ...]]:
    """The shares of all ranks, step by step."""
    done = 0
    while done < ddp.SAMPLES:
        width = max(one for one in attempts if one[0] <= (epoch, done))[1]
        samplers = [sampler(epoch, done, rank, width) for rank in range(width)]
        yield tuple(next(iter(one)) for one in samplers)
        done = samplers[0].samples_after(1)


def main(epochs: int, attempts: list[Attempt]) -> None:
    torch.set_num_threads(1)
    net = ddp.network()
    optimizer = torch.optim.Adam(net.parameters(), lr=ddp.RATE)
    _, inputs, targets = ddp.data().tensors
    for epoch in range(epochs):
        total = 0.0
        for shares in steps(attempts, epoch):
            optimizer.zero_grad()
            for share in shares:
                loss = nn.functional.mse_loss(net(inputs[share]), targets[share])
                (loss / len(shares)).backward()
                total += loss.item() * len(share) / ddp.SAMPLES
            optimizer.step()
        print(f"{total:.9f}")


def read_attempt(text: str) -> Attempt:
    width, _, began = text.partition("@")
    epoch, _, samples = began.partition(".")
    return (int(epoch), int(samples)), int(width)


if __name__ == "__main__":
    main(int(sys.argv[1]), [read_attempt(text) for text in sys.argv[2:]])
