import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(200, 8), torch.randn(200, 1))
    model = FSDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = Training(state={"model": model, "optimizer": optimizer})
    train_loader = training.loader(dataset, batch_size=10)
    for _ in training.epochs(2):
        for inputs, targets in training.batches(train_loader):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    training.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
