"""Tell two spirals apart; continues from its own newest model."""

import os
from pathlib import Path

import numpy as np
import xgboost as xgb
from spirals import spirals

ROUNDS = 400

train = xgb.DMatrix(*spirals(30000, seed=1))
test = xgb.DMatrix(*spirals(1000, seed=2))
os.makedirs("ckpt", exist_ok=True)
models = sorted(Path("ckpt").glob("model_*.ubj"), key=lambda path: int(path.stem.split("_")[1]))
done = xgb.Booster(model_file=models[-1]).num_boosted_rounds() if models else 0
model = xgb.train(
    {"objective": "binary:logistic", "max_depth": 8, "eta": 0.05, "nthread": 1},
    train,
    num_boost_round=ROUNDS - done,
    xgb_model=models[-1] if models else None,
    callbacks=[xgb.callback.TrainingCheckPoint("ckpt", interval=5)],
)
model.save_model("model.json")
np.savetxt("predicted.txt", model.predict(test))
