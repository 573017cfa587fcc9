import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits


class Denoiser(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mean_loss = keras.metrics.Mean("loss")
        self.noise = keras.random.SeedGenerator(3)

    def train_step(self, data):
        images, _ = data
        noisy = images + 0.1 * keras.random.normal(tf.shape(images), seed=self.noise)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(noisy, training=True) - images) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.mean_loss.update_state(loss)
        return {"loss": self.mean_loss.result()}

    @property
    def metrics(self):
        return [self.mean_loss]


keras.utils.set_random_seed(1)
tf.config.experimental.enable_op_determinism()
digits = load_digits()
images = digits.data.astype("float32")[:640] / 16
inputs = keras.Input((64,))
hidden = layers.Dropout(0.1)(layers.Dense(16, activation="relu")(inputs))
model = Denoiser(inputs, layers.Dense(64)(hidden))
schedule = keras.optimizers.schedules.CosineDecay(0.01, 60)
model.compile(optimizer=keras.optimizers.Adam(schedule))
model.fit(images, digits.target[:640], batch_size=32, epochs=3, verbose=0)
model.save_weights("model.weights.h5")
