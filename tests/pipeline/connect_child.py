"""A process that works over Spark Connect only; prints what it saw as one line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph import Graph, pipeline
from omnigraph.errors import RecordError

SCHEMA = "node P { name: String @key age: I32? }\nedge K: P -> P"


def main(folder: Path) -> None:
    uri = str(folder / "graph")
    Graph.init(uri, SCHEMA).close()
    data = folder / "in.jsonl"
    people = [{"type": "P", "data": {"name": f"n{i}", "age": i}} for i in range(20)]
    lines = [*people, {"edge": "K", "from": "n1", "to": "n2"}]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seen: dict[str, object] = {}
    spark = pipeline.session(remote="local[2]")
    seen["session"] = type(spark).__module__
    seen["files"] = pipeline.load(spark, uri, str(data), mode="append").total_entities
    frame = spark.createDataFrame([("n1", 99), ("x", 1)], "name string, age int")
    seen["frame"] = dict(pipeline.load(spark, uri, {"P": frame}, mode="merge").updated)
    data.write_text("no json\n")
    try:
        pipeline.load(spark, uri, str(data), mode="append")
    except RecordError as error:
        seen["refused"] = error.place
    pipeline.register(spark)
    older = spark.read.format("omnigraph").option("type", "P").option("where", "age > 18")
    seen["read"] = older.load(uri).count()
    more = spark.createDataFrame([("z", 1)], "name string, age int")
    more.write.format("omnigraph").option("type", "P").mode("append").save(uri)
    every = spark.read.format("omnigraph").option("type", "P").load(uri)
    seen["read_after_write"] = every.count()
    seen["exported"] = pipeline.export(spark, uri, str(folder / "out")).total_entities
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
