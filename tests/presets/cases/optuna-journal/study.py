"""Look for the lowest point of a function of two numbers; knows nothing of being resumed."""

import time

import optuna
from optuna.storages.journal import JournalFileBackend


def objective(trial):
    x = trial.suggest_float("x", -5, 5)
    y = trial.suggest_float("y", 0, 10)
    time.sleep(0.2)
    return (x - 1) ** 2 + (y - 2) ** 2


storage = optuna.storages.JournalStorage(JournalFileBackend("study.log"))
sampler = optuna.samplers.RandomSampler(seed=1)
study = optuna.create_study(study_name="lowest", storage=storage, sampler=sampler, load_if_exists=True)
study.optimize(objective, n_trials=30)
done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
points = {(trial.params["x"], trial.params["y"]) for trial in done}
with open("result.txt", "w") as file:
    print(f"{len(done)} trials, {len(points)} points", file=file)
