import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.drop = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Dropout(0.1)
        self.last = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.last(self.drop(torch.relu(self.first(self.norm(x)))))


def main(epochs=2, batch_size=25):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    dataset = TensorDataset(images[:1400], labels[:1400])
    model = nn.Sequential(nn.Linear(64, 32), Block(32), Block(32), nn.Linear(32, 10))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    if os.path.exists("model_state_dict.pt"):
        set_model_state_dict(model, torch.load("model_state_dict.pt"), options=FULL)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for i, (inputs, targets) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(inputs), targets) / 2
            loss.backward()
            if i % 2 == 1:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                optim.step()
                optim.zero_grad()
    full = get_model_state_dict(model, options=FULL)
    if dist.get_rank() == 0:
        torch.save(full, "model_state_dict.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
