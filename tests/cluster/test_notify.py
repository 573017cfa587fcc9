"""A detached run tells its end by itself, once, from its last job."""

import json

import yaml
from cluster.detached import detached, submit, wait_for_jobs
from cluster.lab import Cluster
from support.workdir import WorkDir, one_step_segments


def test_the_last_job_of_a_detached_run_tells_its_end(slurm_work: WorkDir, cluster: Cluster) -> None:
    work = detached(slurm_work)
    work.write("program.py", "raise SystemExit(7)\n")
    torch = {"engine": "torch", "segment_minutes": 2, "settings": {"script": "program.py", "goal": 5}}
    work.configure({"good": one_step_segments(segments=3, goal=2), "bad": one_step_segments(2, 5) | torch})
    path = work.root / "config" / "config.yaml"
    told = {"command": "cat >> told.txt", "by": "2999-12-24"}
    path.write_text(yaml.safe_dump({"notify": told, **yaml.safe_load(path.read_text())}))

    submit(work)
    wait_for_jobs(cluster)

    lines = [json.loads(line) for line in (work.root / "told.txt").read_text().splitlines()]
    assert sorted((said["event"], said["run"]) for said in lines) == [("finished", "good"), ("stopped", "bad")]
    assert work.unbroken("notify", "--check").code == 0
    assert len((work.root / "told.txt").read_text().splitlines()) == len(lines)
