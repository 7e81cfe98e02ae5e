"""Every bound on a loop, queue, retry or input, with its unit last."""

from __future__ import annotations

from typing import Final

# Storage and the commit protocol.
INTERNAL_SCHEMA_VERSION: Final = 4
PUBLISHER_RETRY_BUDGET: Final = 5
REPREPARES_MAX: Final = 32
REPREPARES_BEFORE_LEASED: Final = 3  # then prepare under the lease, so that a writer cannot starve
BRANCH_NAME_BYTES_MAX: Final = 255
LEASE_WAIT_MS_MAX: Final = 30_000
LEASE_EXPIRY_MS: Final = 20_000
LEASE_RENEW_MS: Final = 5_000
MANIFEST_FRAGMENTS_MAX: Final = 32  # a publish folds small fragments beyond this
WRITE_THREADS_MAX: Final = 8
MAINTENANCE_CONCURRENCY: Final = 8

# Requests.
LOAD_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
LOAD_LINE_BYTES_MAX: Final = 32 * 1024 * 1024
VIOLATIONS_LISTED_MAX: Final = 100

# The query language.
QUERY_SOURCE_BYTES_MAX: Final = 1024 * 1024
QUERY_NESTING_MAX: Final = 32  # blocks, parentheses and calls inside each other
QUERY_OPERATORS_MAX: Final = 200  # operators of one expression
QUERY_CLAUSES_MAX: Final = 1_000  # clauses, projections and orderings of one query
QUERY_STATEMENTS_MAX: Final = 10_000  # statements of one mutation
QUERY_PARAMS_MAX: Final = 1_000
QUERY_HOPS_MAX: Final = 1_000_000
COMPILED_QUERIES_CACHED_MAX: Final = 512
