"""ETL from Parquet: in process, and the same load on Spark with `--spark`.

python examples/etl.py [--spark]
"""

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph, Source, pipeline, schema


def extract(folder: Path) -> None:
    """What some other system left: orders as wide rows."""
    lines = [(n, f"user{n % 7}@x", f"sku-{n % 5}", n % 5 + 0.5) for n in range(1_000)]
    rows = [dict(zip(("order", "mail", "sku", "price"), line, strict=True)) for line in lines]
    pq.write_table(pa.Table.from_pylist(rows), folder / "orders.parquet")


def transform(folder: Path) -> dict[str, Source]:
    """Rows of each type: customers and products once, purchases as edges between them."""
    orders = pq.read_table(folder / "orders.parquet")
    customers = orders.group_by("mail").aggregate([([], "count_all")])
    products = orders.group_by("sku").aggregate([("price", "max")])
    pq.write_table(customers.select(["mail"]), folder / "customer.parquet")
    pq.write_table(products.rename_columns(["sku", "price"]), folder / "product.parquet")
    renamed = {"from": "mail", "to": "sku", "number": "order"}
    return {
        "Customer": Source.parquet(str(folder / "customer.parquet")),
        "Product": Source.parquet(str(folder / "product.parquet")),
        "Bought": Source.parquet(str(folder / "orders.parquet"), columns=renamed),
    }


def main(folder: Path, *, on_spark: bool) -> None:
    extract(folder)
    sources = transform(folder)
    types = schema.infer(folder / "customer.parquet") + schema.infer(folder / "product.parquet")
    uri = str(folder / "shop.omni")
    with Graph.init(uri, types + "edge Bought: Customer -> Product { number: I64 }") as graph:
        if on_spark:
            pipeline.load(pipeline.session(), uri, sources, mode="append")
            graph.refresh()
        else:
            graph.load(sources, mode="append", idempotency_key="orders-2026-11-18")
        print(
            graph.query("""
            query best() {
                match { $c: Customer  $c $b:bought $p }
                return { $p.sku as sku, sum($p.price) as revenue } order { revenue desc } limit 3
            }""")
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch), on_spark="--spark" in sys.argv)
