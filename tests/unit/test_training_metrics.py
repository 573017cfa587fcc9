"""The metrics of a training: in pieces those of the whole, byte for byte, and small."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.errors import FormatError
from unbroken.training.core.metrics import Metrics
from unbroken.training.core.metrics_log import FILE_NAME, MetricsLog

Logged = list[tuple[int, bool, list[tuple[str, float]]]]
# A metric may have the name of a column.
NAMES = ("loss", "rate", "accuracy", "epoch")
logged = st.lists(
    st.tuples(
        st.integers(0, 2),  # so many steps further, or at the same one
        st.booleans(),  # in the next epoch
        st.lists(st.tuples(st.sampled_from(NAMES), st.floats(-1e9, 1e9)), min_size=1, max_size=3),
    ),
    max_size=40,
)


def again(metrics: Metrics) -> Metrics:
    """As a restart gets them from a checkpoint."""
    restored = Metrics()
    restored.restore(json.loads(json.dumps(metrics.state())))
    return restored


@given(logged, st.sets(st.integers(0, 40), max_size=3))
def test_in_pieces_they_are_those_of_the_whole(calls: Logged, cuts: set[int]) -> None:
    whole, pieces, epoch, step = Metrics(), Metrics(), 0, 0
    rows: dict[tuple[int, int], dict[str, float]] = {}
    flat: list[tuple[int, str, float]] = []
    for number, (ahead, is_next_epoch, values) in enumerate(calls):
        if number in cuts:
            pieces = again(pieces)
        epoch, step = epoch + is_next_epoch, step + ahead
        for name, value in values:
            whole.add(epoch, step, {name: value})
            pieces.add(epoch, step, {name: value})
            rows.setdefault((epoch, step), {})[name] = value
            flat.append((epoch, name, value))
    pieces = again(pieces)

    assert pieces.state() == whole.state()
    assert (pieces.names, list(pieces.latest.items())) == (whole.names, list(whole.latest.items()))
    assert pieces.to_csv() == whole.to_csv()
    table = [{"epoch": at[0], "step": at[1], **values} for at, values in rows.items()]
    assert list(pieces.table()) == list(whole.table()) == table
    assert pieces.size == len(flat)
    assert list(whole.table(0, whole.complete())) == table[:-1]
    for cut in cuts:
        before = whole.before(cut)
        assert list(whole.table(0, before)) + list(whole.table(before)) == table
        assert [row["step"] for row in whole.table(0, before)] == [at[1] for at in rows if at[1] < cut]
    last = [value for at, name, value in flat if (at, name) == (epoch, "loss")]
    mean = math.fsum(last) / len(last) if last else math.nan
    assert pieces.mean("loss", epoch) == pytest.approx(mean, nan_ok=True)


def test_a_name_of_a_column_is_a_column_of_its_own() -> None:
    metrics = Metrics()
    metrics.add(0, 1, {"epoch": 0.5})
    assert metrics.to_csv() == "epoch,step,epoch\n0,1,0.5\n"


def test_a_checkpoint_of_an_adapter_in_an_earlier_format_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"step": 3, "names": [], "values": []}')

    with pytest.raises(
        FormatError, match=r"unbroken_metrics\.json: found format .*, unbroken .* reads 2; .*"
    ) as refused:
        MetricsLog().read(tmp_path)

    assert "\n" not in str(refused.value)
