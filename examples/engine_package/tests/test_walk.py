"""The walk keeps the promises: pytest tests, beside an installed unbroken and an installed unbroken-walk."""

from unbroken.engines.testing import Case, check_engine


def test_the_walk_keeps_the_promises(tmp_path):
    walk = Case(
        engine="walk",
        settings={"goal": 1500, "seed": 7},
        whole_settings={"pause": 0},  # the same result, sooner
        segments=6,
        segment_minutes=0.06,
        save_minutes=0.005,
        final_files=("state.json",),
        other_settings={"seed": 8},  # another computation
        further_goal=1700,
        kills=6,
    )

    check_engine(walk, tmp_path)
