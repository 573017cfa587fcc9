"""What sbatch's answers mean."""

import pytest

from unbroken.slurm.sbatch import Refusal, kind_of

FAILED = "sbatch: error: Batch job submission failed: "
FULL = (
    f"sbatch: error: AssocMaxSubmitJobLimit\n{FAILED}Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)"
)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (f"{FAILED}Unable to contact slurm controller (connect failure)", Refusal.LATER),
        (f"{FAILED}Socket timed out on send/recv operation", Refusal.LATER),
        (FULL, Refusal.FULL),
        (f"{FAILED}Resource temporarily unavailable", Refusal.SITE_FULL),
        (f"{FAILED}Invalid job array specification", Refusal.NO_ARRAY),
        (f"{FAILED}Invalid account or account/partition combination", Refusal.NEVER),
        (f"sbatch: error: group physics has no hours left\n{FAILED}Unspecified error", Refusal.NEVER),
        ("slurmstepd: error: *** JOB 17 CANCELLED ***\n", Refusal.LATER),
        ("sbatch: exit code 1", Refusal.LATER),
    ],
)
def test_which_of_them_time_heals(said: str, kind: Refusal) -> None:
    assert kind_of(said) is kind
