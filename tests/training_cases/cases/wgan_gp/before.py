import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

n_epochs, batch_size, lr, b1, b2, latent_dim, n_critic, lambda_gp = 2, 40, 0.001, 0.5, 0.999, 8, 5, 10
torch.manual_seed(7)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
dataloader = DataLoader(TensorDataset(images[:1480]), batch_size, shuffle=True)

generator = nn.Sequential(nn.Linear(latent_dim, 32), nn.BatchNorm1d(32, 0.8), nn.ReLU(), nn.Linear(32, 64), nn.Tanh())
discriminator = nn.Sequential(nn.utils.spectral_norm(nn.Linear(64, 32)), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_G = torch.optim.Adam(generator.parameters(), lr=lr, betas=(b1, b2))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=lr, betas=(b1, b2))


def compute_gradient_penalty(real_samples, fake_samples):
    alpha = torch.rand(real_samples.size(0), 1)
    interpolates = (alpha * real_samples + (1 - alpha) * fake_samples).requires_grad_(True)
    output = discriminator(interpolates)
    (gradients,) = torch.autograd.grad(output, interpolates, torch.ones_like(output), create_graph=True)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


for epoch in range(n_epochs):
    for i, (imgs,) in enumerate(dataloader):
        optimizer_D.zero_grad()
        z = torch.randn(imgs.size(0), latent_dim)
        fake_imgs = generator(z).detach()
        penalty = compute_gradient_penalty(imgs, fake_imgs)
        d_loss = -discriminator(imgs).mean() + discriminator(fake_imgs).mean() + lambda_gp * penalty
        d_loss.backward()
        optimizer_D.step()
        if i % n_critic == 0:
            optimizer_G.zero_grad()
            g_loss = -discriminator(generator(z)).mean()
            g_loss.backward()
            optimizer_G.step()
            print(f"[Epoch {epoch}/{n_epochs}] [Batch {i}] [D loss: {d_loss.item():.4f}] [G loss: {g_loss.item():.4f}]")
torch.save(generator.state_dict(), "generator.pt")
