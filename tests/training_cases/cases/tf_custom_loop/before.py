import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

EPOCHS = 3
keras.utils.set_random_seed(1)
tf.config.experimental.enable_op_determinism()
digits = load_digits()
images, labels = digits.data.astype("float32")[:640] / 16, digits.target[:640]
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(640).batch(32)
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


checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
for epoch in range(EPOCHS):
    train_loss.reset_state()
    for batch in dataset:
        train_step(*batch)
    print(f"epoch {epoch}: loss {float(train_loss.result()):.4f} after {int(seen)} images")
    manager.save()
model.save("model.keras")
