import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from unbroken.training.torch import Training, Variables

torch.manual_seed(42)
digits = load_digits()
features, labels = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
near = torch.cdist(features, features).topk(5, largest=False).indices
adj = torch.zeros(300, 300).scatter_(1, near, 1.0)
adj = ((adj + adj.T) > 0).float()
degree = adj.sum(1).rsqrt()
adj = (degree[:, None] * adj * degree[None, :]).to_sparse()
train_idx, val_idx = torch.arange(0, 150), torch.arange(150, 300)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(64, 16, bias=False), nn.Linear(16, 10, bias=False)

    def forward(self, x):
        x = F.relu(torch.sparse.mm(adj, self.w1(F.dropout(x, 0.3, self.training))))
        return F.log_softmax(torch.sparse.mm(adj, self.w2(F.dropout(x, 0.5, self.training))), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
best, patience = copy.deepcopy(model), 8
variables = Variables(best_loss=float("inf"), bad=0)
training = Training(state={"model": model, "best": best, "optimizer": optimizer, "variables": variables})
for epoch in training.steps(300):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(features)[train_idx], labels[train_idx])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        val_loss = F.nll_loss(model(features)[val_idx], labels[val_idx]).item()
    training.log(loss=loss.item(), val_loss=val_loss)
    if val_loss < variables["best_loss"]:
        variables.update(best_loss=val_loss, bad=0)
        best.load_state_dict(model.state_dict())
    else:
        variables["bad"] += 1
    if variables["bad"] > patience:
        print(f"stopped at epoch {epoch}, best loss {variables['best_loss']:.4f}")
        break
training.finish({"gcn.pt": best.state_dict()})
