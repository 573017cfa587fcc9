"""Tell two spirals apart; knows nothing of being resumed."""

import os

import numpy as np
import xgboost as xgb
from spirals import spirals

train = xgb.DMatrix(*spirals(30000, seed=1))
test = xgb.DMatrix(*spirals(1000, seed=2))
os.makedirs("ckpt", exist_ok=True)
model = xgb.train(
    {"objective": "binary:logistic", "max_depth": 8, "eta": 0.05, "nthread": 1},
    train,
    num_boost_round=400,  # all of them
    callbacks=[xgb.callback.TrainingCheckPoint(directory="ckpt", interval=5)],
)
model.save_model("model.json")
np.savetxt("predicted.txt", model.predict(test))
