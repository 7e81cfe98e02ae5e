"""The one primitive: order, retries, errors as themselves, progress."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from omnigraph.errors import KeyConflictError, SparkUnavailableError, StorageUnavailableError
from omnigraph.pipeline.runner import fan_out

pytestmark = pytest.mark.spark

# Workers cannot import test files, so the functions below travel with the task.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_answers_come_in_the_order_of_the_payloads(spark):
    assert fan_out(spark, list(range(7)), lambda number: number * number) == [
        0, 1, 4, 9, 16, 25, 36,
    ]  # fmt: skip


def test_no_payload_is_no_job(spark):
    assert fan_out(spark, [], lambda payload: payload) == []


def first_time(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def fails_once(task: tuple[Path, str]) -> str:
    folder, how = task
    if first_time(folder / how):
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "unavailable":
            raise StorageUnavailableError("the store is away")
        raise RuntimeError(how)
    return how


@pytest.mark.parametrize("how", ["raised", "killed", "unavailable"])
def test_a_task_that_fails_once_is_tried_again_and_counted_once(spark, tmp_path, how):
    assert fan_out(spark, [(tmp_path, how)], fails_once) == [how]


def tries_and_refuses(folder: Path) -> None:
    (folder / f"try-{os.urandom(4).hex()}").touch()
    raise KeyConflictError(entity_kind="node", type_name="T", entity_id="a")


def test_an_error_of_ours_arrives_as_itself_after_one_try(spark, tmp_path):
    with pytest.raises(KeyConflictError) as conflict:
        fan_out(spark, [tmp_path], tries_and_refuses)
    assert conflict.value.entity_id == "a"
    assert conflict.value.hint
    assert len(list(tmp_path.iterdir())) == 1


def always_fails(payload: int) -> int:
    raise ValueError(f"cannot do {payload}")


def test_a_task_that_always_fails_names_the_step_and_the_cause(spark):
    with pytest.raises(SparkUnavailableError, match=r"step 'shape'.*cannot do 5"):
        fan_out(spark, [5], always_fails, stage="shape")


def test_a_listener_hears_the_first_and_the_last_task(spark):
    heard = []
    fan_out(spark, [1, 2, 3], lambda number: number, stage="count", listener=heard.append)
    assert (heard[0].stage, heard[0].tasks_done, heard[0].tasks_total) == ("count", 0, 3)
    assert heard[-1].tasks_done == 3
