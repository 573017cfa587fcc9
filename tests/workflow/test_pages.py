"""What a page begins with runs as it stands there."""

import os
import re
import signal

import pytest
import yaml
from support.workdir import ROOT, WorkDir, until


@pytest.mark.slow
def test_the_script_and_the_config_of_the_page_of_torch_come_killed_to_the_result_of_one_piece(work: WorkDir) -> None:
    pytest.importorskip("torch", reason="missing: torch (pip install torch)")
    page = (ROOT / "docs/engines/torch.md").read_text()
    blocks = dict(re.findall(r"^```(python|yaml)\n(.*?)^```", page.partition("\n## ")[0], re.MULTILINE | re.DOTALL))
    work.write("train.py", blocks["python"])
    (run,) = yaml.safe_load(blocks["yaml"])["runs"].values()

    work.configure({"pieces": {**run, "save_minutes": 0.001}})
    driver = work.start()
    until(lambda: work.saved("pieces"))
    os.kill(work.holder("pieces"), signal.SIGKILL)
    driver.wait()
    done = work.snakemake()
    assert done.code == 0, done.text
    work.configure({"whole": run})
    assert work.snakemake().code == 0

    pieces, whole = work.final("pieces"), work.final("whole")
    assert [attempt.kind.value for attempt in work.history("pieces")] == ["died", "finished"]
    assert {name: pieces[name] for name in ("model.pt", "metrics.csv")} == {
        name: whole[name] for name in ("model.pt", "metrics.csv")
    }
    assert float(whole["metrics.csv"].decode().rstrip().rpartition(",")[2]) > 0.8
