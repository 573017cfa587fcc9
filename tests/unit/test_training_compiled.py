"""Models of torch.compile: the names of their state, what the passport says (pieces: test_training_device_kills.py)."""

import copy
import json
from pathlib import Path

import pytest
from support.telling import begin_as_a_new_process

torch = pytest.importorskip("torch", reason="missing: torch (pip install torch)")

from torch import nn  # noqa: E402
from torch.optim.swa_utils import AveragedModel  # noqa: E402

from unbroken.training.core.session import differences  # noqa: E402
from unbroken.training.torch import Training  # noqa: E402
from unbroken.training.torch import state as torch_state  # noqa: E402
from unbroken.training.torch.put_back import put_back  # noqa: E402
from unbroken.training.torch.writer import made_with  # noqa: E402

# torch itself, where it loads its compiler.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*script_method. is deprecated:DeprecationWarning"),
    pytest.mark.usefixtures("signals_kept"),
]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout())


@pytest.mark.process
def test_a_compiled_model_and_the_plain_one_go_on_from_each_other_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner, plain = small(), small()
    compiled = torch.compile(inner)
    best = copy.deepcopy(inner)
    training = Training(state={"model": compiled, "best": best}, folder=tmp_path)
    training.finish({"model.pt": best.state_dict()})
    versions = json.loads((tmp_path / "checkpoints" / "latest" / "manifest.json").read_text())["versions"]
    capsys.readouterr()
    begin_as_a_new_process()
    resumed = Training(state={"model": plain, "best": copy.deepcopy(plain)}, folder=tmp_path)
    resumed._link.place.close()
    said = capsys.readouterr().out

    assert versions["compiled"] == "model"
    assert list(torch.load(tmp_path / "final" / "model.pt")) == ["0.weight", "0.bias"]
    assert torch.equal(plain[0].weight, inner[0].weight)
    assert "environment changed since this checkpoint (compiled model -> none): training continues" in said


@pytest.mark.process
def test_an_average_of_a_compiled_model_goes_on_as_one(tmp_path: Path) -> None:
    averages = [AveragedModel(torch.compile(small())) for _ in range(2)]
    averages[0].update_parameters(small())
    Training(state={"average": averages[0]}, folder=tmp_path).finish()
    begin_as_a_new_process()
    Training(state={"average": averages[1]}, folder=tmp_path)._link.place.close()

    assert int(averages[1].n_averaged) == 1
    assert all(torch.equal(*pair) for pair in zip(*(one.parameters() for one in averages), strict=True))
    plain = AveragedModel(small())
    begin_as_a_new_process()
    Training(state={"average": plain}, folder=tmp_path)._link.place.close()
    assert all(torch.equal(*pair) for pair in zip(plain.parameters(), averages[0].parameters(), strict=True))


def test_what_shows_in_the_last_digits_stands_in_the_passport() -> None:
    inner = small()
    inner.compile()

    found = made_with(4, {"a": inner, "b": torch.compile(small()), "c": small(), "d": nn.Sequential(inner)})

    assert found["compiled"] == "a, b, d"
    assert (found["ranks"], found["threads"]) == ("4", str(torch.get_num_threads()))
    assert found["gpus"] == str(torch.cuda.device_count())


def test_a_change_of_threads_gpus_or_torch_is_told_and_one_of_the_rest_is_not() -> None:
    before = {"torch": "2.9", "threads": "4", "gpus": "1", "compiled": "none", "ranks": "2", "numpy": "1"}

    assert differences(before, {**before, "ranks": "1", "numpy": "2"}) == ""
    assert differences({}, before) == ""
    assert differences(before, {**before, "threads": "2", "gpus": "0", "torch": "2.10"}) == (
        "torch 2.9 -> 2.10, threads 4 -> 2, gpus 1 -> 0"
    )


def compiled_by_blocks(model: nn.Sequential) -> nn.Sequential:
    for number, block in enumerate(model):
        model[number] = torch.compile(block)
    return model


def blocks() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


@pytest.mark.parametrize("was_compiled", [True, False])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_blocks_that_are_compiled_one_by_one_and_plain_ones_go_on_from_each_other(
    was_compiled: bool, is_compiled: bool
) -> None:
    made = compiled_by_blocks(blocks()) if was_compiled else blocks()
    saved = {"model": torch_state.state_of(made)}
    here = compiled_by_blocks(blocks()) if is_compiled else blocks()
    with torch.no_grad():
        for parameter in here.parameters():
            parameter.zero_()

    put_back({"model": here}, saved, "ckpt")

    assert list(saved["model"]) == list(blocks().state_dict())
    assert saved["model"]._metadata == blocks().state_dict()._metadata
    assert list(torch_state.parameters_in({"model": here})) == [
        f"model.{key}" for key, _ in blocks().named_parameters()
    ]
    assert any(map(torch_state.is_wrapped_by_compile, here)) == is_compiled
    assert torch.equal(here.state_dict()[next(iter(here.state_dict()))], blocks()[0].weight)
