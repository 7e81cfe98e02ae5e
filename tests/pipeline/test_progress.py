"""Bars on the terminal: for those who wait, and for nobody else."""

from __future__ import annotations

import time

from omnigraph.engine.load.report import Tick
from omnigraph.pipeline.progress import status_line, terminal_bars


def test_what_is_soon_over_draws_nothing(capsys):
    with terminal_bars(after_seconds=60.0) as draw:
        draw(Tick(stage="stage", tasks_done=1, tasks_total=2, seconds=0.1))
    assert capsys.readouterr().err == ""


def test_what_takes_longer_draws_a_bar_a_stage(capsys):
    with terminal_bars(after_seconds=0.01) as draw:
        draw(Tick(stage="stage", tasks_done=1, tasks_total=2, seconds=0.1))
        time.sleep(0.3)
        draw(Tick(stage="commit", tasks_done=1, tasks_total=1, seconds=0.1, records=5))
    err = capsys.readouterr().err
    assert "stage" in err
    assert "commit" in err


def test_a_status_line_ends_with_its_block(capsys):
    with status_line("starting"):
        pass
    assert "Traceback" not in capsys.readouterr().err
