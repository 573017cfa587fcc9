"""Look for the lowest point of a function of three numbers; each trial has a seed of its own, so it can be repeated."""

import time

import optuna

TRIALS = 30
DONE = [optuna.trial.TrialState.COMPLETE]


def objective(trial):
    x = trial.suggest_float("x", -5, 5)
    y = trial.suggest_float("y", 0.01, 10, log=True)
    n = trial.suggest_int("n", 1, 7)
    time.sleep(0.2)
    return (x - 1) ** 2 + (y - 2) ** 2 + abs(n - 3)


study = optuna.create_study(study_name="lowest", storage="sqlite:///study.db", load_if_exists=True)
while (done := len(study.get_trials(deepcopy=False, states=DONE))) < TRIALS:
    study.sampler = optuna.samplers.TPESampler(seed=1 + done)
    study.optimize(objective, n_trials=1)
with open("trials.txt", "w") as file:
    for trial in study.get_trials(states=DONE):
        print(*trial.params.values(), trial.value, file=file)
