import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

k_folds, num_epochs = 3, 3
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
dataset = TensorDataset(images[:900], labels[:900])
results = {}
for fold, (train_ids, test_ids) in enumerate(KFold(n_splits=k_folds, shuffle=True, random_state=0).split(dataset)):
    torch.manual_seed(42)
    trainloader = DataLoader(dataset, batch_size=50, sampler=SubsetRandomSampler(train_ids))
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(num_epochs):
        for inputs, targets in trainloader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
    torch.save(network.state_dict(), f"model-fold-{fold}.pt")
    network.eval()
    with torch.no_grad():
        results[fold] = (network(images[test_ids]).argmax(1) == labels[test_ids]).float().mean().item()
    print(f"Fold {fold}: {100 * results[fold]:.2f} %")
print(f"Average: {100 * sum(results.values()) / len(results):.2f} %")
