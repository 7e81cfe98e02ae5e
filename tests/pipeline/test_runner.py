"""The runner of Spark: order, retries, errors as themselves, progress."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions

from omnigraph.errors import (
    InputError,
    KeyConflictError,
    SparkUnavailableError,
    StorageUnavailableError,
)
from omnigraph.pipeline.runner import SparkRunner, in_our_words

pytestmark = pytest.mark.spark

# Workers cannot import test files, so the functions below travel with the task.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def run(spark, tasks, function, stage="tasks"):
    return SparkRunner(spark).run(tasks, function, stage=stage)


def test_answers_come_in_the_order_of_the_payloads(spark):
    assert run(spark, list(range(7)), lambda number: number * number) == [
        0, 1, 4, 9, 16, 25, 36,
    ]  # fmt: skip


def test_no_payload_is_no_job(spark):
    assert run(spark, [], lambda payload: payload) == []


def test_what_is_no_session_is_refused():
    with pytest.raises(InputError, match="spark must be SparkSession, got NoneType"):
        SparkRunner(None)


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
    assert run(spark, [(tmp_path, how)], fails_once) == [how]


def tries_and_refuses(folder: Path) -> None:
    (folder / f"try-{os.urandom(4).hex()}").touch()
    raise KeyConflictError(entity_kind="node", type_name="T", entity_id="a")


def test_an_error_of_ours_arrives_as_itself_after_one_try(spark, tmp_path):
    with pytest.raises(KeyConflictError) as conflict:
        run(spark, [tmp_path], tries_and_refuses)
    assert conflict.value.entity_id == "a"
    assert conflict.value.hint
    assert len(list(tmp_path.iterdir())) == 1


def always_fails(payload: int) -> int:
    raise ValueError(f"cannot do {payload}")


def test_a_task_that_always_fails_names_the_step_and_the_cause(spark):
    with pytest.raises(SparkUnavailableError, match=r"step 'shape'.*cannot do 5"):
        run(spark, [5], always_fails, stage="shape")


def refuses(batches):
    raise InputError("no", hint="try another one")
    yield from batches


def test_an_error_of_ours_arrives_as_itself_from_what_is_sent_to_all_executors(spark):
    """Of a future of Java's, PySpark hands the error on as it is."""
    everywhere = functions.broadcast(spark.range(3).mapInArrow(refuses, "id long"))
    with pytest.raises(InputError, match=r"^no\n") as caught, in_our_words("query"):
        spark.range(3).join(everywhere, "id").toArrow()
    assert caught.value.hint == "try another one"


def test_a_listener_hears_the_first_and_the_last_task(spark):
    heard = []
    SparkRunner(spark, heard.append).run([1, 2, 3], lambda number: number, stage="count")
    assert (heard[0].stage, heard[0].tasks_done, heard[0].tasks_total) == ("count", 0, 3)
    assert heard[-1].tasks_done == 3


@pytest.mark.parametrize("error", [Py4JNetworkError("no answer"), PySparkException("cancelled")])
def test_an_interrupt_is_one_also_where_pyspark_fails_to_clean_up_behind_it(error):
    interrupt = error.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught, in_our_words("stage"):
        raise error
    assert caught.value is interrupt
