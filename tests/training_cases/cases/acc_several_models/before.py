import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

EPOCHS = 3


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(32, outputs))


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(3)
    images = torch.tensor(load_digits().data, dtype=torch.float32)[:640] / 16
    teacher, student, judge = network(64, 8).requires_grad_(False).eval(), network(64, 8), network(8, 1)
    average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    learn, judging = torch.optim.Adam(student.parameters(), 3e-3), torch.optim.Adam(judge.parameters(), 3e-3)
    loader = DataLoader(images, batch_size=32, shuffle=True)
    student, judge, learn, judging, loader = accelerator.prepare(student, judge, learn, judging, loader)
    accelerator.register_for_checkpointing(average)
    for _ in range(EPOCHS):
        for batch in loader:
            wanted, found = teacher(batch), student(batch + 0.1 * torch.randn_like(batch))
            ones = torch.ones(len(batch), 1)
            judging.zero_grad()
            loss = F.binary_cross_entropy_with_logits(judge(wanted), ones)
            loss = loss + F.binary_cross_entropy_with_logits(judge(found.detach()), 0 * ones)
            accelerator.backward(loss)
            judging.step()
            learn.zero_grad()
            loss = F.mse_loss(found, wanted) + 0.1 * F.binary_cross_entropy_with_logits(judge(found), ones)
            accelerator.backward(loss)
            learn.step()
            average.update_parameters(accelerator.unwrap_model(student))
    torch.save(average.state_dict(), "average.pt")


main()
