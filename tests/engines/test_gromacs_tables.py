"""Where tables of times are cut, and what several segments left is joined: files alone, no mdrun."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from unbroken.engines.gromacs.cpt import Cpt, OutputPosition
from unbroken.engines.gromacs.mdrun_line import named_files, options_of, words_in
from unbroken.engines.gromacs.others import Moment, Others, write_others
from unbroken.engines.gromacs.outputs import MAY_BE_NAMED, names_apart, part_name
from unbroken.engines.gromacs.simulation import Tpr
from unbroken.engines.gromacs.tables import Cut, counted_bytes, cut_at
from unbroken.errors import CheckpointError

END_PS = 12.0
FIELDS = "#! FIELDS time phi\n"


def table(tmp_path: Path, text: str) -> Path:
    (tmp_path / "COLVAR").write_text(text)
    return tmp_path / "COLVAR"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (FIELDS + "10 1\n11 1\n12 1\n13 1\n", FIELDS + "10 1\n11 1\n12 1\n"),
        (FIELDS + "11 1\n12 1", FIELDS + "11 1\n"),
        ('@ xaxis  label "Time (ps)"\n11 1\n99 1\n', '@ xaxis  label "Time (ps)"\n11 1\n'),
        (FIELDS + "13 1\n", FIELDS),
        (FIELDS, FIELDS),
    ],
)
def test_a_table_of_times_ends_with_the_time_of_its_checkpoint(tmp_path, text, kept):
    assert cut_at(table(tmp_path, text), 0, END_PS) == Cut(len(kept), 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "#! FIELDS phi ff\n10 1\n11 1\n",  # a free energy over an angle
        '@ xaxis label "Distance (nm)"\n10 1\n11 1\n',
        FIELDS + "hill 1\nhill 2\n",
        FIELDS + "11 1\n10 1\n",  # runs backwards
        "10.5 1\n11.5 1\n12.5 1\n",  # no head
    ],
)
def test_numbers_that_are_no_times_are_not_taken_for_times(tmp_path, text):
    assert cut_at(table(tmp_path, text), 0, END_PS) is None


def test_regular_rows_that_stop_before_the_checkpoint_are_a_gap(tmp_path):
    rows = [f"{10 + n * 0.2:.1f} 1\n" for n in range(7)]

    cut = cut_at(table(tmp_path, FIELDS + "".join(rows)), 0, END_PS)

    assert cut is not None and cut.gap_ps == pytest.approx(0.8)


def moment(end_ps: float, *, is_good_end: bool = False) -> Moment:
    return Moment(1000, 10.0, end_ps, is_good_end, is_good_end)


def test_rows_that_a_kill_took_refuse_the_checkpoint_and_name_the_file(tmp_path):
    table(tmp_path, FIELDS + "".join(f"{10 + n * 0.2:.1f} 1\n" for n in range(7)))
    others = Others(tmp_path, None, {}, are_state=True)

    with pytest.raises(CheckpointError, match=r"COLVAR: ends 0\.8 ps before the checkpoint at 12 ps"):
        others.at(moment(12.0), [])

    assert [file.size_bytes for file in others.at(moment(11.2), [])] == [(tmp_path / "COLVAR").stat().st_size]


def test_the_row_that_a_program_prints_again_where_it_resumes_is_stored_once(tmp_path):
    before = FIELDS + "8 1\n10 1\n"
    (tmp_path / "origin" / "state").mkdir(parents=True)
    (tmp_path / "origin" / "state" / "COLVAR").write_text(before)
    (tmp_path / "mdrun").mkdir()
    table(tmp_path / "mdrun", before + FIELDS + "10 1\n12 1\n14 1\n")
    others = Others(tmp_path / "mdrun", SimpleNamespace(folder=tmp_path / "origin"), {}, are_state=True)

    write_others(others.at(moment(12.0), []), tmp_path / "mdrun", tmp_path / "draft", are_state=True)

    assert (tmp_path / "draft" / "state" / "COLVAR").read_text() == before + "12 1\n"


def test_a_file_without_times_is_kept_after_a_good_end_alone(tmp_path):
    (tmp_path / "grid").write_text("hill 1\n")

    assert [file.size_bytes for file in Others(tmp_path, None, {}, are_state=True).at(moment(12, is_good_end=True), [])]
    assert [file.size_bytes for file in Others(tmp_path, None, {}, are_state=False).at(moment(12), [])] == [7]
    with pytest.raises(CheckpointError, match="grid: names no time as its first column"):
        Others(tmp_path, None, {}, are_state=True).at(moment(12), [])


def test_inputs_links_checkpoints_and_mdruns_own_files_are_no_other_files(tmp_path):
    folder = tmp_path / "mdrun"
    folder.mkdir()
    for name in ("md.cpt", "md.part0001.xtc", "extended.tpr", "core.12", "plumed.dat", "HILLS", "new"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to("new")
    inputs = {name: tmp_path / name for name in ("plumed.dat", "HILLS")}
    inputs["plumed.dat"].write_text("plumed.dat")
    inputs["HILLS"].write_text("HILLS of before")

    files = Others(folder, None, inputs, are_state=True).at(moment(12, is_good_end=True), ["md.part0001.xtc"])
    write_others(files, folder, tmp_path / "draft", are_state=True)

    assert [file.name for file in files] == ["HILLS", "new"]
    assert sorted(path.name for path in (tmp_path / "draft" / "state").iterdir()) == ["HILLS", "new"]


def test_each_file_of_mdrun_has_a_name_of_its_own():
    words = names_apart(["-field", "-dlb", "no"])

    assert words[-2:] == ["-field", "md_field.xvg"]
    assert len({*words[1::2]}) == len(words) // 2
    assert not [name for name in words[1::2] if name in ("md.log", "md.xvg")]
    assert part_name("_rotslabs.log", 3) == "md_rotslabs.part0003.log"


def test_options_that_name_a_file_of_mdrun_name_the_result():
    options = options_of(["-px", "where", "-dlb", "no", "-field", "-v", "-swap", "ions.xvg"])

    assert words_in(options, MAY_BE_NAMED) == ["-dlb", "no", "-v"]
    assert named_files(options) == {"_pullx.xvg": "where.xvg", "_field.xvg": "field.xvg", "_swapions.xvg": "ions.xvg"}


@pytest.mark.parametrize("has_first", [True, False])
def test_tables_of_rotation_are_cut_where_the_next_part_prints_on(tmp_path, has_first):
    """GROMACS 2022 does not print the step where a part begins; later releases do."""
    first = 100 if has_first else 120
    steps = {"md_rotation.part0002.xvg": range(first, 300, 20), "md_rotslabs.part0002.log": range(first, 300, 100)}
    if not has_first:
        steps["md_rotslabs.part0002.log"] = range(200, 300, 100)
    for name, printed in steps.items():
        head = "# head\n" + ("  -1.000e+00     0 reference\n" if "slabs" in name else "")
        groups = 2 if "slabs" in name else 1
        rows = [f"  {1000 + step * 0.002:.3e}  {group} x\n" for step in printed for group in range(groups)]
        (tmp_path / name).write_text(head + "".join(rows))
    tpr = Tpr("md", 1000, 0, 0.002, 1000.0, "No", -1, rotation_steps=20, slab_steps=100)
    rotation = (tmp_path / "md_rotation.part0002.xvg").read_text().splitlines(keepends=True)
    size = len("".join(rotation[: 1 + len([step for step in steps["md_rotation.part0002.xvg"] if step <= 200])]))
    output = OutputPosition("md_rotation.part0002.xvg", size, -1, "")
    cpt = Cpt(tmp_path / "md.cpt", "GROMACS", 3, 2, 200, 1000.4, (output,))

    counted = counted_bytes(cpt, tmp_path, tpr, 100)

    kept = {name: (tmp_path / name).read_bytes()[:size].decode() for name, size in counted.items()}
    assert {name: text.count(" x\n") for name, text in kept.items()} == {
        "md_rotation.part0002.xvg": 5,
        "md_rotslabs.part0002.log": 2,
    }


def test_rows_of_rotation_that_a_kill_took_are_missed(tmp_path):
    (tmp_path / "md_rotation.part0001.xvg").write_text("0.04 1 1\n0.08 1 1\n0.12 1")
    tpr = Tpr("md", 1000, 0, 0.002, 0.0, "No", -1, rotation_steps=20, slab_steps=100)
    cpt = Cpt(tmp_path / "md.cpt", "GROMACS", 3, 1, 60, 0.12, ())

    with pytest.raises(CheckpointError, match=r"md_rotation\.part0001\.xvg: 2 rows, 3 belong to its checkpoint"):
        counted_bytes(cpt, tmp_path, tpr, 0)
