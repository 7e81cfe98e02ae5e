"""Every way of reading, as the settings that lead to it: an answer never depends on one.

A setting is a constant by its name, changed wherever it was imported to, or `module:NAME` for that
module alone. A way that names a constant which is not there any more fails at once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest

from omnigraph import Graph
from omnigraph.engine.core import OpenMode
from omnigraph.engine.read import run
from omnigraph.engine.read.memory import cache

EVERYTHING = 1 << 60
FEW = 3  # so little that the smallest graph of a test crosses it several times
ROOT = "omnigraph.engine"
assert run.__name__.startswith(ROOT), "the modules below must be imported before they are changed"

SMALL_STEPS = {
    "CHUNK_ROWS": FEW,
    "CROSS_CHUNK_ROWS": FEW,
    "PATCH_ROWS_MAX": 1,
    "PATCH_RUNS_MAX": 0,
    "ADDED_IDS_MAX": 1,
    "ONE_BY_ONE_MAX": 0,
    "NEW_EDGES_MAX": 1,
    "SLICE_EDGES": FEW,
    "PAIRS_AT_ONCE": FEW,
    "SLICE_ROWS": FEW,
    "BLOCK_EDGES": 1,
    "PART_TEXTS": FEW,
    "LIKE_PARTS_MAX": 1,
    "PAGE_NUMBERS": FEW,
    "DENSE_SHARE": EVERYTHING,
    "BLOCK_ROWS": FEW,
    "PROJECTED_ROWS_MAX": FEW,
    "PARALLEL_ROWS_MIN": 0,
    "HELD_GROUPS_MAX": FEW,
    "FOLLOWED_ROWS_MAX": 1,
    "FOLLOWED_CHANGES_MAX": 1,
    "READ_CACHE_VERSIONS_MAX": 1,
    "READ_CACHE_VALUES_MAX": FEW,
    "MOVED_SHARE_MAX": 1.0,  # whatever changes, caches follow it
    "_ADDED_MAX": 1,
    "_GONE_BY_HAND_MAX": 0,
    "_LONG_BYTES": 8,
}
QUICK_KERNELS = {
    "FEW_TEXTS_MAX": 0,
    "TOP_ROWS_MIN": 1,
    "SAMPLE_ROWS": FEW,
    "PART_ROWS": FEW,
    "COUNTED_RANGE_MAX": EVERYTHING,
    "NEAR_ROWS_MIN": 1,
    "FUSED_ROWS_MIN": 1,
    "ASKED_SHARE": 1,
    "SEARCHES_MAX": 0,
    "ENTITIES_SHARE": EVERYTHING,
    "CODED_SHARE": EVERYTHING,
    "NEAR_RANGE_MAX": EVERYTHING,
    "EDGE_SCAN_SHARE": EVERYTHING,
    "BOTH_SIDES_SHARE": EVERYTHING,
    "LOOKED_UP_SHARE": 0,
    "ASCENDING_SHARE": EVERYTHING,
    "MERGED_SHARE": 0,
    "SLICED_SHARE": 1,
    "LATE_SHARE": 1,
}
PLAIN_KERNELS = {
    "FEW_TEXTS_MAX": EVERYTHING,
    "TOP_ROWS_MIN": EVERYTHING,
    "COUNTED_RANGE_MAX": 0,
    "NEAR_ROWS_MIN": EVERYTHING,
    "ASKED_SHARE": EVERYTHING,
    "DENSE_ROOM": -EVERYTHING,
    "PIECED_SLOTS_MAX": 0,
    "ENTITIES_SHARE": 0,
    "CODED_SHARE": 0,
    "SIZED_CODES_MAX": 0,
    "NEAR_RANGE_MAX": 0,
    "EDGE_SCAN_SHARE": 0,
    "BOTH_SIDES_SHARE": 0,
    "LOOKED_UP_SHARE": EVERYTHING,
    "ASCENDING_SHARE": 0,
    "RANKED_SHARE": 0,
    "MERGED_SHARE": EVERYTHING,
    "SLICED_SHARE": EVERYTHING,
    "LATE_SHARE": EVERYTHING,
    "_BITMAP_CELLS_MAX": 0,
    "_SORTED_BY_HAND_MAX": 0,
}
STORED_CANDIDATES = {
    "read.match.candidates:SMALL_TABLE_ROWS": -1,
    "read.memory.frame:SMALL_TABLE_ROWS": -1,
    "HOT_FETCHES": EVERYTHING,
    "SEARCHED_IDS_MAX": 1,
    "FEW_IDS": 0,
    "WHOLE_SHARE": 0,
    "LISTED_MAX": 1,
    "CROSS_CHUNK_ROWS": FEW,
    "IDS_AT_ONCE_ROWS": -1,
    "COLUMN_BYTES_MAX": 0,
    "PRINTED_ROWS_MIN": EVERYTHING,
}
PRINTS = {"PRINTED_ROWS_MIN": 0, "COMPARED_MAX": 1, "_BATCH_ROWS": FEW, "_SEARCHED_ROWS": FEW}

NOTHING_KEPT = {"READ_CACHE_SHARE": 0, "READ_CACHE_BYTES_MIN": 0}

WAYS = {
    "in memory": {"SMALL_TABLE_ROWS": EVERYTHING},
    "in memory, small steps": {"SMALL_TABLE_ROWS": EVERYTHING, **SMALL_STEPS, **QUICK_KERNELS},
    "in memory, plain kernels": {"SMALL_TABLE_ROWS": EVERYTHING, **PLAIN_KERNELS},
    "in memory, several chunks": {"SMALL_TABLE_ROWS": EVERYTHING, "CHUNK_ROWS": 1000},
    "nothing is kept": {**NOTHING_KEPT, **SMALL_STEPS},
    "little is kept": {
        **NOTHING_KEPT,
        "READ_CACHE_BYTES_MIN": 4096,
        "SMALL_TABLE_ROWS": -1,
        "HOT_FETCHES": 0,
    },
    "candidates from storage": {**STORED_CANDIDATES, **QUICK_KERNELS},
    "lookups": {**STORED_CANDIDATES, "LOOKUP_EDGES_MIN": 0, "LOOKUP_WALKS": EVERYTHING},
    "lookups by fingerprints": {
        **STORED_CANDIDATES,
        **PRINTS,
        "SEARCHED_IDS_MAX": 4,
        "SEARCHES_MAX": EVERYTHING,
        "LOOKUP_EDGES_MIN": 0,
        "LOOKUP_WALKS": EVERYTHING,
    },
    "lookups that give up": {
        "LOOKUP_EDGES_MIN": 0,
        "LOOKUP_WALKS": EVERYTHING,
        "LOOKUP_NODES_MAX": 1,
        "IDS_AT_ONCE_ROWS": -1,
    },
    "pushed scans": {
        "read.memory.cache:SMALL_TABLE_ROWS": -1,
        "FRAME_ROWS_MAX": -1,
        "TOP_ROWS_MIN": 1,
    },
    "topologies in files": {"TOPOLOGY_FILE_EDGES_MIN": 0, "LOOKUP_EDGES_MIN": 0, "LOOKUP_WALKS": 0},
    "topologies and ids built beside": {
        "LOOKUP_EDGES_MIN": 0,
        "LOOKUP_WALKS": 0,
        "BACKGROUND_EDGES_MIN": 0,
        "SLICE_ROWS": FEW,
        "IDS_AT_ONCE_ROWS": -1,
        "BESIDE_IDS_MIN": 0,
        "PRINTED_ROWS_MIN": 0,
        "SEARCHED_IDS_MAX": 4,
        "SEARCHES_MAX": 1,
    },
}

# What differs between them is seen on few rows; on many, steps of three rows take too long.
FOR_MANY_ROWS = [name for name, settings in WAYS.items() if settings.get("CHUNK_ROWS") != FEW]


@contextmanager
def way(name):
    """The settings of this way, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        for setting, value in WAYS[name].items():
            place, _, constant = setting.rpartition(":")
            places = modules_with(constant, f"{ROOT}.{place}" if place else None)
            assert places, f"no module has the setting {setting}"
            for module in places:
                patch.setattr(module, constant, value)
        if name == "pushed scans":
            patch.setattr(cache.Caches, "known_frame", lambda self, entry: None)
        yield


def opened(uri, name):
    """A handle to read with in this way; how much it may keep is settled when it is opened."""
    with way(name):
        return Graph.open(uri, OpenMode.READ_ONLY)


def modules_with(constant, only):
    loaded = [m for n, m in sys.modules.items() if n.startswith(ROOT) and only in (None, n)]
    return [module for module in loaded if constant in vars(module)]
