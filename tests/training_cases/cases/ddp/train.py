import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training


def load_train_objs():
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 10))
    return TensorDataset(images[:1400], labels[:1400]), model, torch.optim.AdamW(model.parameters(), lr=3e-3)


class Trainer:
    def __init__(self, model, dataset, optimizer, batch_size):
        self.optimizer = optimizer
        self.model = DDP(model)
        self.training = Training(state={"model": self.model, "optimizer": optimizer}, seed=0)
        self.train_data = self.training.loader(dataset, batch_size)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        self.training.log(loss=loss.item())

    def train(self, max_epochs):
        for _ in self.training.epochs(max_epochs):
            for source, targets in self.training.batches(self.train_data):
                self._run_batch(source, targets)
        self.training.finish({"model.pt": self.model.module.state_dict()})


def main(total_epochs=3, batch_size=35):
    dist.init_process_group("gloo")
    dataset, model, optimizer = load_train_objs()
    trainer = Trainer(model, dataset, optimizer, batch_size)
    trainer.train(total_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
