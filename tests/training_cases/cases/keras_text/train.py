import keras
import numpy as np
import tensorflow as tf
from keras import layers

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything

seed_everything(1)
tf.config.experimental.enable_op_determinism()
rng = np.random.default_rng(0)
texts = [rng.integers(1, 40, rng.integers(4, 12)) for _ in range(400)]
labels = np.array([[int((text > 20).mean() > 0.5)] for text in texts], dtype="float32")
padded = keras.utils.pad_sequences(texts, 12)
model = keras.Sequential(
    [
        keras.Input((12,), dtype="int32"),
        layers.Embedding(40, 8, mask_zero=True),
        layers.Bidirectional(layers.LSTM(8, dropout=0.2)),
        layers.Dense(1, activation="sigmoid"),
    ]
)
average = keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, clipnorm=1.0)
model.compile(average, "binary_crossentropy", metrics=["accuracy"])
slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7 if epoch else rate)
unbroken = UnbrokenCallback(seed=1)
data = unbroken.data(padded, labels, batch_size=16)
model.fit(data, epochs=3, callbacks=[slower, unbroken], verbose=0)
