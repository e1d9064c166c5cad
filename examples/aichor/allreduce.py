"""Do the ranks of a PyTorchJob meet? Run by pytorch.yaml beside it; needs torch."""

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
total = torch.tensor([rank + 1])
torch.distributed.all_reduce(total)
print(f"rank {rank} of {ranks}: all have {int(total)}")
