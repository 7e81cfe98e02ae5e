"""A load on Spark, from the words of the command line to the pipeline's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.call import Call, read_text
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline import PipelineReport
