import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training


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
    training = Training(state={"model": model, "optim": optim}, seed=0)
    loader = training.loader(dataset, batch_size)
    for _ in training.epochs(epochs):
        for inputs, targets in training.batches(loader):
            loss = nn.functional.cross_entropy(model(inputs), targets) / 2
            loss.backward()
            training.log(loss=2 * loss.item())
            if training.batch % 2 == 1:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                optim.step()
                optim.zero_grad()
    training.finish({"model_state_dict.pt": model.state_dict()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
