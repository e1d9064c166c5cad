"""PyTorch's DistributedDataParallel on CPUs (gloo) or GPUs (nccl), stopped at any step and resumed right after it.

The order of the data depends on the epoch alone, the sampler goes on after the samples that are done, and the optimizer
is part of the checkpoint: at equal width a run that was interrupted learns what an uninterrupted one does, at another
one each sample is still seen once an epoch. Under torchrun or as a gang of Swell's tasks.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import swell_sdk
from swell_sdk.torch import ResumableSampler

SAMPLES = 512
BATCH = 64  # of all ranks together
RATE = 0.01
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one rank


def data() -> TensorDataset:
    inputs = torch.rand(SAMPLES, 4, generator=torch.Generator().manual_seed(7))
    return TensorDataset(torch.arange(SAMPLES), inputs, (inputs**2).sum(dim=1, keepdim=True))


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))


class Training:
    """What a checkpoint has: all that a step changes."""

    def __init__(self, device: Any) -> None:
        self.net = network().to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE)
        self.total = torch.zeros(1, device=device)  # of the epoch under way: its loss so far

    def load(self, path: str, device: Any) -> None:
        saved: dict[str, Any] = torch.load(path, map_location=device)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.total = saved["total"]

    def add(self, loss: Any) -> None:
        """A step's, of all ranks: rank 0 may be asked to save after any."""
        dist.all_reduce(loss)
        self.total += loss

    def save(self, path: str) -> None:
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "total": self.total}
        torch.save(state, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, help="all of them  [default: as the job says, or 5]")
    parser.add_argument("--sample-s", type=float, default=STEP_S / BATCH, help="how long a sample pretends to take")
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
    training = Training(device)
    if run.checkpoint_path:
        training.load(run.checkpoint_path, device)
    run.on_yield(training.save, suffix=".pt")  # at whatever step it is asked to stop
    model = DistributedDataParallel(training.net)

    dataset = data()
    loader = DataLoader(dataset, batch_sampler=ResumableSampler(dataset, BATCH // world_size))
    if rank == 0:
        done = f"{run.epochs_done} epochs and {run.begun_before.samples_done if run.begun_before else 0} samples done"
        print(f"width {world_size}, {'resumed' if run.restarted else 'new'}, {done}", flush=True)
    for epoch in run.epochs(options.epochs or run.epochs_total or 5):
        if run.begun_before is None:
            training.total.zero_()
        steps = 0
        for _, inputs, targets in run.steps(loader):
            training.optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            loss.backward()
            training.optimizer.step()
            training.add(loss.detach() * len(inputs) / SAMPLES)
            steps += 1
            time.sleep(options.sample_s * len(inputs))
        run.save(training.save, suffix=".pt")
        dist.barrier()  # nobody leaves before rank 0 has saved
        if rank == 0:
            run.metric("loss", training.total.item())
            told = f"{steps} steps, ranks: {dist.get_world_size()}"
            print(f"width {world_size}, epoch {epoch + 1}: loss {training.total.item():.9f} in {told}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
