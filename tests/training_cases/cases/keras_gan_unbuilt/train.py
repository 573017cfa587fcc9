import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent=8):
        super().__init__()
        self.discriminator, self.generator, self.latent = discriminator, generator, latent
        self.seeds = keras.random.SeedGenerator(5)
        self.d_loss, self.g_loss = keras.metrics.Mean("d_loss"), keras.metrics.Mean("g_loss")

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def call(self, images):
        return self.discriminator(images)

    def train_step(self, data):
        real, _ = data
        count = tf.shape(real)[0]
        noise = keras.random.normal((count, self.latent), seed=self.seeds)
        both = tf.concat([self.generator(noise), real], 0)
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_of(labels, self.discriminator(both, training=True))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        noise = keras.random.normal((count, self.latent), seed=self.seeds)
        with tf.GradientTape() as tape:
            g_loss = self.loss_of(tf.zeros((count, 1)), self.discriminator(self.generator(noise), training=True))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


seed_everything(1)
tf.config.experimental.enable_op_determinism()
digits = load_digits()
images, labels = digits.data.astype("float32")[:640] / 16, digits.target[:640]
discriminator = keras.Sequential(
    [keras.Input((64,)), layers.Dense(32, activation="leaky_relu"), layers.Dropout(0.2), layers.Dense(1)]
)
generator = keras.Sequential([keras.Input((8,)), layers.Dense(32, activation="relu"), layers.Dense(64, "sigmoid")])
gan = GAN(discriminator, generator)
gan.compile(keras.optimizers.Adam(0.002), keras.optimizers.Adam(0.002))
unbroken = UnbrokenCallback(seed=1)
gan.fit(unbroken.data(images, labels, batch_size=32), epochs=3, callbacks=[unbroken], verbose=0)
