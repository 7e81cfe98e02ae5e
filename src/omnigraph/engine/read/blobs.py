"""Reading one Blob property of one entity."""

from __future__ import annotations

from omnigraph.engine.arguments import INT, TEXT, require
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import ROW_ID, Catalog, EdgeType, NodeType, Scalar
from omnigraph.storage.lance import sql
from omnigraph.storage.table.read import StoredBlob
from omnigraph.storage.table.table import Tables


class BlobReader:
    """The bytes of one blob, read on demand. `uri` is set when they lie outside the graph."""

    def __init__(self, blob: StoredBlob) -> None:
        self._blob = blob
        self._size: int | None = None

    @property
    def uri(self) -> str | None:
        return self._blob.uri

    @property
    def kind(self) -> str:
        return "external" if self._blob.uri else "managed"

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = self._blob.size
        return self._size

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to but not including `stop`."""
        require(INT, start=start, stop=stop)
        if not 0 <= start <= stop <= self.size:
            raise InputError(
                f"range {start} to {stop} does not lie within the blob's {self.size} bytes",
                start=start,
                stop=stop,
                size=self.size,
            )
        return self._blob.read_range(start, stop)

    def read(self) -> bytes:
        """All of it."""
        return self.read_range(0, self.size)


def read_blob(
    tables: Tables,
    catalog: Catalog,
    snapshot: Snapshot,
    kind: str,
    type_name: str,
    entity_id: str,
    property_name: str,
) -> BlobReader:
    """The blob of an entity; `NotFoundError` if there is no such entity or the value is null."""
    require(TEXT, kind=kind, type_name=type_name, id=entity_id, property=property_name)
    entity = _entity(catalog, kind, type_name)
    prop = entity.by_name.get(property_name)
    if prop is None:
        raise NotFoundError(
            f"{kind} type '{entity.name}' has no property '{property_name}'",
            kind="property",
            name=property_name,
        )
    if prop.type.scalar is not Scalar.BLOB:
        raise InputError(
            f"property '{entity.name}.{property_name}' is {prop.type}, not a Blob",
            type_name=entity.name,
            property=property_name,
        )
    table = tables.open(snapshot.entries[entity.table_key])
    found = table.read(columns=["id"], where=sql.in_list("id", [entity_id]), with_row_id=True)
    if found.num_rows == 0:
        raise NotFoundError(
            f"{kind} {entity.name} '{entity_id}' does not exist", kind=kind, name=entity_id
        )
    (blob,) = table.blobs(property_name, [int(found[ROW_ID][0].as_py() or 0)])
    if blob is None:
        raise NotFoundError(
            f"{kind} {entity.name} '{entity_id}' has no '{property_name}'",
            kind="blob",
            name=property_name,
        )
    return BlobReader(blob)


def _entity(catalog: Catalog, kind: str, type_name: str) -> NodeType | EdgeType:
    if kind not in ("node", "edge"):
        raise InputError(f"unknown entity kind '{kind}'", hint="use node or edge")
    found = catalog.nodes.get(type_name) if kind == "node" else catalog.edge_named(type_name)
    if found is None:
        raise NotFoundError(f"unknown {kind} type '{type_name}'", kind=kind, name=type_name)
    return found
