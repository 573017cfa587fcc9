import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

from unbroken.training.tensorflow import Training, seed_everything

EPOCHS = 3
seed_everything(1)
tf.config.experimental.enable_op_determinism()
digits = load_digits()
images, labels = digits.data.astype("float32")[:640] / 16, digits.target[:640]
model = keras.Sequential([keras.Input((64,)), layers.Dense(32, "relu"), layers.Dropout(0.2), layers.Dense(10)])
optimizer = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 20, 0.7), momentum=0.9)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_loss, seen = keras.metrics.Mean("train_loss"), tf.Variable(0)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    train_loss.update_state(loss)
    seen.assign_add(tf.shape(images)[0])


parts = {"model": model, "optimizer": optimizer, "train_loss": train_loss, "seen": seen}
training = Training(state=parts, seed=1)
data = training.data(images, labels, batch_size=32)
for epoch in training.epochs(EPOCHS):
    train_loss.reset_state()
    for batch in training.batches(data):
        train_step(*batch)
    print(f"epoch {epoch}: loss {float(train_loss.result()):.4f} after {int(seen)} images")
    training.log(train_loss=float(train_loss.result()), seen=int(seen))
training.finish({"model.keras": model})
