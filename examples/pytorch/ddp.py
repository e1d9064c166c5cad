"""PyTorch's DistributedDataParallel on CPUs (gloo) or GPUs (nccl), stopped and resumed without losing work.

The order of the data depends on the epoch alone and the optimizer is part of the checkpoint, so at equal width a run
that was interrupted ends with the same loss as one that was not. Under torchrun or as a gang of Swell's tasks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import swell_sdk

SAMPLES = 512
BATCH = 32
RATE = 0.01


def data() -> Any:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(SAMPLES, 4, generator=generator)
    return inputs, (inputs**2).sum(dim=1, keepdim=True)


def indices(epoch: int, rank: int, world_size: int) -> Iterator[Any]:
    """This rank's batches: every rank draws the same order and takes its share."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    for start in range(0, SAMPLES, BATCH):
        yield order[start : start + BATCH][rank::world_size]


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, help="all of them  [default: as the job says, or 5]")
    parser.add_argument("--sample-s", type=float, default=0.0, help="how long a sample pretends to take")
    options = parser.parse_args()

    run = swell_sdk.attach()
    rank, world_size = run.rank, run.world_size
    here = run.environment
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=f"tcp://{here.master_addr}:{here.master_port}",
        rank=rank,
        world_size=world_size,
    )
    device = torch.device("cuda", here.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.set_num_threads(1)
    net = network().to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    if run.checkpoint_path:
        saved: dict[str, Any] = torch.load(run.checkpoint_path, map_location=device)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])

    inputs, targets = (one.to(device) for one in data())
    if rank == 0:
        print(f"width {world_size}, {'resumed' if run.restarted else 'new'}, {run.epochs_done} epochs done", flush=True)
    for epoch in run.epochs(options.epochs or run.epochs_total or 5):
        total, steps = torch.zeros(1, device=device), 0
        for batch in run.steps(indices(epoch, rank, world_size)):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch) / SAMPLES
            steps += 1
            time.sleep(options.sample_s * len(batch))
        dist.all_reduce(total)
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
        run.save(lambda path: torch.save(state, path), suffix=".pt")  # noqa: B023
        dist.barrier()  # nobody leaves before rank 0 has saved
        if rank == 0:
            run.metric("loss", total.item())
            told = f"{steps} steps, ranks: {dist.get_world_size()}"
            print(f"width {world_size}, epoch {epoch + 1}: loss {total.item():.9f} in {told}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
