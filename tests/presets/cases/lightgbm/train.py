"""Tell two spirals apart; saves its model now and then, and knows nothing of being resumed."""

import json

import lightgbm as lgb
import numpy as np
from spirals import spirals


def save(env):
    if env.iteration % 20 == 19:
        env.model.save_model("model.ckpt")


points, labels = spirals(30000, seed=1)
test, _ = spirals(1000, seed=2)
params = {"objective": "binary", "num_leaves": 63, "learning_rate": 0.05, "verbosity": -1}
params |= {"num_threads": 1, "deterministic": True, "force_row_wise": True}
model = lgb.train(params, lgb.Dataset(points, labels), num_boost_round=500, callbacks=[save])
with open("trees.json", "w") as file:
    json.dump(model.dump_model()["tree_info"], file)
np.savetxt("predicted.txt", model.predict(test))
