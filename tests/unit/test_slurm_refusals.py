"""What sbatch's answers mean."""

import pytest

from unbroken.slurm.refusals import is_queue_full, is_transient, refusal

FAILED = "sbatch: error: Batch job submission failed: "
FULL = (
    f"sbatch: error: AssocMaxSubmitJobLimit\n{FAILED}Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)"
)
# As snakemake-executor-plugin-slurm passes it on.
PLUGIN = "SLURM sbatch failed. The error message was '{}'.\n    sbatch call:\n        sbatch --parsable\n"


@pytest.mark.parametrize(
    ("words", "transient", "full"),
    [
        (f"{FAILED}Unable to contact slurm controller (connect failure)", True, False),
        (f"{FAILED}Socket timed out on send/recv operation", True, False),
        (FULL, True, True),
        (f"{FAILED}Invalid account or account/partition combination", False, False),
    ],
)
def test_which_of_them_time_heals(words: str, transient: bool, full: bool) -> None:
    assert (is_transient(words), is_queue_full(words)) == (transient, full)
    assert (refusal(PLUGIN.format(words)) == "") is transient


def test_a_refusal_for_good_is_told_in_sbatchs_own_words_once() -> None:
    site = "sbatch: error: group physics has no hours left"
    said = f"{site}\n{FAILED}Unspecified error"
    ours = f"unbroken: runs.a, segment 1: Slurm refuses the job ({refusal(said)}); fix the config\n"

    assert refusal(PLUGIN.format(said) + ours + PLUGIN.format(said)) == f"{site}; {FAILED}Unspecified error"
    assert refusal(f"{FAILED}Requested node configuration is not available\n") == (
        f"{FAILED}Requested node configuration is not available"
    )


def test_whatever_else_fails_is_no_refusal() -> None:
    assert refusal("WorkflowError: no such file\nslurmstepd: error: *** JOB 17 CANCELLED ***\n") == ""
