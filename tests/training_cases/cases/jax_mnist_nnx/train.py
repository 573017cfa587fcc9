import flax
import grain
import optax
from flax import nnx
from sklearn.datasets import load_digits

from unbroken.training.jax import Training

STEPS, EVERY = 60, 20


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.linear = nnx.Linear(4 * 4 * 8, 10, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, images):
        x = nnx.avg_pool(nnx.relu(self.norm(self.conv(images))), (2, 2), strides=(2, 2))
        return self.linear(self.dropout(x.reshape(len(images), -1)))


@nnx.jit
def train_step(model, optimizer, metrics, batch):
    def loss_of(model):
        logits = model(batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean(), logits

    (loss, logits), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, gradients)


digits = load_digits()
images = digits.images[..., None].astype("float32") / 16
rows = [{"image": image, "label": label} for image, label in zip(images[:640], digits.target[:640], strict=True)]
batches = iter(grain.MapDataset.source(rows).seed(1).shuffle().repeat().batch(32).to_iter_dataset())
model = CNN(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(0.01, STEPS), 0.9), wrt=nnx.Param)
metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
training = Training({"model": model, "optimizer": optimizer, "metrics": metrics}, data=batches, seed=0)
for step in training.steps(STEPS):
    train_step(model, optimizer, metrics, next(batches))
    if (step + 1) % EVERY == 0:
        found = {name: float(value) for name, value in metrics.compute().items()}
        print(f"step {step + 1}: {found}")
        training.log(**found)
        metrics.reset()
weights = flax.serialization.to_bytes(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
training.finish({"model.msgpack": weights})
