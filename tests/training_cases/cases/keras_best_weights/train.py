import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

from unbroken.training.keras import UnbrokenCallback
from unbroken.training.tensorflow import seed_everything

seed_everything(1)
tf.config.experimental.enable_op_determinism()
digits = load_digits()
images, labels = digits.images[..., None].astype("float32") / 16, keras.utils.to_categorical(digits.target)
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.Adam(0.01), metrics=["accuracy"])
callbacks = [
    keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
]
held_out = (images[600:800], labels[600:800])
unbroken = UnbrokenCallback(seed=1)
data = unbroken.data(images[:600], labels[:600], batch_size=32)
model.fit(data, epochs=5, validation_data=held_out, callbacks=[*callbacks, unbroken], verbose=0)
