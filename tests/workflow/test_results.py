"""A run whose results cannot be written is called finished by nobody, and its next start writes them alone."""

from support.workdir import WorkDir

PROGRAM = """
echo run >> "$STARTS"
d="$UNBROKEN_SAVE/draft"; mkdir "$d" "$d/final"; echo mine > "$d/final/summary.json"
echo '{"done": 20, "goal": 20}' > "$d/progress.json"; mv "$d" "$UNBROKEN_SAVE/1.ready"
"""


def test_driver_status_and_record_agree_that_a_run_without_results_is_not_finished(work: WorkDir) -> None:
    path = work.write("run.sh", PROGRAM.replace("$STARTS", str(work.root / "starts")))
    work.configure(
        {"demo": {"engine": "command", "segments": 1, "segment_minutes": 5, "settings": {"start": ["bash", str(path)]}}}
    )

    done = work.snakemake("--retries", "0")
    status = work.unbroken("status", columns=400)

    said = done.text
    assert done.code == 1
    assert "finished" not in "\n".join(line for line in said.splitlines() if "demo segment 1" in line)
    assert "the goal is reached (20 of 20" in said
    assert "its results were not written" in status.text
    assert "stopped" in status.text
    assert not work.places("demo").record(1).exists()

    again = work.snakemake("--retries", "0")

    assert again.code == 1
    assert (work.root / "starts").read_text() == "run\n"
