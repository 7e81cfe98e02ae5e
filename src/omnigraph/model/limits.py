"""Every bound on a loop, queue, retry or input, with its unit last."""

from __future__ import annotations

from typing import Final

# Storage and the commit protocol.
INTERNAL_SCHEMA_VERSION: Final = 100  # 1 to 6 are layouts of the reference system
PUBLISHER_RETRY_BUDGET: Final = 5
REPREPARES_MAX: Final = 32
REPREPARES_BEFORE_LEASED: Final = 3  # then prepare under the lease, so that a writer cannot starve
BRANCH_NAME_BYTES_MAX: Final = 255
IDEMPOTENCY_KEY_BYTES_MAX: Final = 255
COMMIT_PREFIX_CHARS_MIN: Final = 8  # of a commit id that stands for the whole of it
REF_STEPS_MAX: Final = 64  # signs such as those of `main~2^`
REF_CANDIDATES_LISTED_MAX: Final = 10
COMMIT_MESSAGE_BYTES_MAX: Final = 2_048  # the newest commits are written again with each publish
IDEMPOTENCY_COMMITS_MAX: Final = 10_000  # newest commits of a branch whose keys are remembered
LEASE_WAIT_MS_MAX: Final = 30_000
LEASE_EXPIRY_MS: Final = 20_000
LEASE_RENEW_MS: Final = 5_000
LEASE_CLOCK_SKEW_MS: Final = 2_000  # clocks of two machines may be so far apart
BRANCH_LISTING_TRIES_MAX: Final = 64  # Lance stumbles over branches that vanish while it lists
MIGRATION_ROUNDS_MAX: Final = 32  # looks at a graph that other processes migrate too
MANIFEST_TAIL_COMMITS_MAX: Final = 128  # then a publish seals the older ones into a fragment
MANIFEST_TAIL_COMMITS_MIN: Final = 32  # newest commits that always stay in the tail
MANIFEST_SEALED_ROWS_MAX: Final = 262_144  # larger history fragments are not folded again
MANIFEST_CHUNKS_CACHED_MAX: Final = 64
MANIFEST_SNAPSHOTS_CACHED_MAX: Final = 64
WRITE_THREADS_MAX: Final = 8
TYPE_LIVES_MAX: Final = 1_000  # tables that types of one name may have had
FORK_LIVES_MAX: Final = 1_000  # lines of one table that one branch may have had
MAINTENANCE_CONCURRENCY: Final = 8  # tables that maintenance works on at once
RECOVERY_FLOOR_VERSIONS: Final = 3  # fewer may not hold what recovery would go back to
GRACE_MS: Final = 60_000  # former heads that cleanup keeps while others have the graph open
STAGED_SAFE_AGE_MS: Final = 7 * 24 * 3_600_000  # then cleanup takes what a writer left behind
DESCENT_WRITES_MAX: Final = 64  # tries to write down parents while others do the same
MERGE_BASE_ROUNDS_MAX: Final = 16  # bases of bases of bases, then differences are conflicts
AUTO_FRAGMENTS_MAX: Final = 64  # small fragments of a table, then upkeep compacts them by itself
AUTO_CLEANUP_COMMITS: Final = 256  # of a branch, after which upkeep asks for the retention
AUTO_RUN_FRAGMENTS_MAX: Final = 16  # of these that are compacted into one, by itself
TARGET_FRAGMENT_ROWS: Final = 1024 * 1024  # rows of a fragment that compaction leaves alone
INDEX_SEGMENTS_MAX: Final = 16  # then the index is built anew
INDEX_TASK_ROWS: Final = 1024 * 1024  # rows that one executor indexes at a time, if it can be split
VECTOR_PARTITIONS_MAX: Final = 4_096
SESSION_INDEX_BYTES_MAX: Final = 512 * 1024 * 1024  # Lance's caches, per graph handle
SESSION_METADATA_BYTES_MAX: Final = 256 * 1024 * 1024
TABLE_HANDLES_MAX: Final = 256  # open table versions kept per graph handle
DERIVED_ROWS_MIN: Final = 16_384  # of a fragment; what searches need of fewer is made when asked
DERIVED_BYTES_MAX: Final = 256 * 1024 * 1024  # of values that one derived file is made of
NARROW_FRAGMENTS_MIN: Final = 8  # fewer fragments are scanned as they are
NARROW_ROWS_MAX: Final = 1_024  # rows of a fragment whose values are worth remembering
NARROW_VALUES_MAX: Final = 500_000  # values remembered per graph handle
BACKUP_THREADS_MAX: Final = 4  # that copy files
BACKUP_TRIES_MAX: Final = 10  # looks at a graph that changes while it is copied
BACKUP_HOLD_MS: Final = 600_000  # that cleanup waits for a copy whose process may be dead
VERIFY_THREADS_MAX: Final = 4  # that read files back
VERIFY_PASS_ROWS_MAX: Final = 2_000_000  # whose ids are held at once
STORE_CONNECT_MS_MAX: Final = 2_000  # an object store that does not answer must not hang a command
STORE_REQUEST_MS_MAX: Final = 30_000
STORE_RETRIES_MAX: Final = 3
STORE_RETRY_MS_MAX: Final = 10_000

# Requests.
LOAD_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
LOAD_HELD_BYTES_MAX: Final = 256 * 1024 * 1024  # of rows that a load in process holds
LOAD_THREADS_MAX: Final = 4  # that run the tasks of a load in process; each holds rows of its own
LOAD_SHORT_VECTOR_MAX: Final = 128  # longer ones are loaded by one task at a time, in process
LOAD_LINE_BYTES_MAX: Final = 32 * 1024 * 1024
VIOLATIONS_LISTED_MAX: Final = 100
MERGE_CONFLICTS_LISTED_MAX: Final = 1_000_000
CHANGES_PER_PAGE_DEFAULT: Final = 1_000
CHANGES_PER_PAGE_MAX: Final = 8_192
FEED_COMMITS_PER_POLL: Final = 128
TOKEN_BYTES_MAX: Final = 4_096
LOAD_CHUNK_ROWS: Final = 16_384  # parsed records of one type kept as Python values
BLOB_URI_BYTES_MAX: Final = 64 * 1024
BLOB_URIS_MAX: Final = 8_192  # addresses of blobs in one write, where bases are named
BLOB_PROBES_MAX: Final = 8  # of them that are looked at side by side

# Both languages.
PROBLEMS_LISTED_MAX: Final = 100  # problems listed by the error of a schema or query
NAMES_SUGGESTED_MAX: Final = 10  # unknown names of one text for which a near one is looked up
NAMES_COMPARED_MAX: Final = 100  # known names that an unknown one is compared with

# The query language.
QUERY_SOURCE_BYTES_MAX: Final = 1024 * 1024
QUERY_NESTING_MAX: Final = 32  # blocks, parentheses and calls inside each other
QUERY_OPERATORS_MAX: Final = 200  # operators of one expression
QUERY_CLAUSES_MAX: Final = 1_000  # clauses, projections and orderings of one query
QUERY_STAGES_MAX: Final = 100  # stages of one query, and queries of one union
QUERY_STATEMENTS_MAX: Final = 10_000  # statements of one mutation
QUERY_PARAMS_MAX: Final = 1_000
QUERY_HOPS_MAX: Final = 1_000_000
RANGE_ITEMS_MAX: Final = 1_000_000  # elements of one `range(a, b)`
COMPILED_QUERIES_CACHED_MAX: Final = 512
PARSED_QUERIES_CACHED_MAX: Final = 64
CACHED_QUERY_CHARS_MAX: Final = 32_768  # longer sources are compiled anew each time

# The schema language.
SCHEMA_SOURCE_BYTES_MAX: Final = 1024 * 1024
SCHEMA_TYPES_MAX: Final = 5_000  # interfaces, nodes and edges of one schema
SCHEMA_MEMBERS_MAX: Final = 2_000  # properties and constraints of one type
SCHEMA_NAME_LENGTH_MAX: Final = 255
SCHEMA_NUMBER_LENGTH_MAX: Final = 64
SCHEMA_PATTERN_LENGTH_MAX: Final = 1_000  # of one @check
SCHEMA_PATTERN_NESTING_MAX: Final = 50
SCHEMA_PATTERN_REPEATS_MAX: Final = 1_000  # what nested {n,m} of one @check multiply to
SCHEMA_PATTERN_SIZE_MAX: Final = 100_000  # about the machine instructions of one @check
COMPILED_SCHEMAS_CACHED_MAX: Final = 64

# The pipeline.
SPLIT_BYTES: Final = 64 * 1024 * 1024  # of line files, one task each
SPLIT_CHUNK_BYTES: Final = 16 * 1024 * 1024  # of a split, parsed at once
CHECK_BUCKET_KEYS: Final = 4_000_000  # keys that one check task holds at once
CHECK_BUCKETS_MAX: Final = 1_024  # into which the keys of one load are cut
CHECK_BUCKETS_UNSIZED: Final = 64  # the same for DataFrames, whose size nobody knows beforehand
CHECK_SPREAD_KEYS: Final = 500_000  # fewer keys than this are not worth a second check task
CHECK_LOOKUP_BYTES_MAX: Final = 1 << 20  # of input: stored rows are looked up, never read through
CHECK_LOOKUP_ROWS_MAX: Final = 10_000  # of rows in memory: the same
STAGE_FLUSH_BYTES: Final = 256 * 1024 * 1024  # of shaped rows, held by the tasks of a process
EMBED_BATCH_TEXTS: Final = 64  # texts that a write sends to the embedder at once
EMBED_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024  # of vectors that an open graph remembers by text
EMBED_COMMIT_ROWS: Final = 4_096  # missing vectors that are filled by one commit
PATH_CHARACTERS_MAX: Final = 4_096  # a longer text is no path that came as text
PIECE_ROWS: Final = 1_000_000  # of a columnar file, one task each
GROUP_ROWS: Final = 500_000  # of a stored table, read by one task
CHECK_ROUNDS_MAX: Final = 16  # of taking out bad rows until the rest is clean
STREAM_CLOCK_SKEW_MS_MAX: Final = 3_600_000  # between the clocks of those who write to one branch
OFFENDERS_SHOWN_MAX: Final = 20  # bad records that an error or report describes

# Reading.
READ_CACHE_SHARE: Final = 0.25  # of the machine's memory, for what an open graph keeps
READ_CACHE_BYTES_MIN: Final = 1024 * 1024 * 1024  # the same where memory is small
READ_CACHE_VERSIONS_MAX: Final = 4  # of one thing that is kept, say the frame of a table
READ_CACHE_VALUES_MAX: Final = 1_024  # things that an open graph keeps
QUERY_MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024  # match rows of one query
QUERY_TIME_MS_MAX: Final = 300_000
RETURNED_BYTES_KEPT_MAX: Final = 64 * 1024  # ids and rows of a mutation, kept with its commit
TOPOLOGY_FILE_EDGES_MIN: Final = 100_000  # the shape of a smaller edge type is not kept on disk
TOPOLOGY_FILES_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024  # on disk, for all graphs of a user

# The client of a server.
CLIENT_CHUNK_BYTES: Final = 64 * 1024  # of a stream, read at once
CLIENT_LOAD_BYTES_MAX: Final = 32 * 1024 * 1024  # of one load; servers take no more

# Policies and tokens.
POLICY_MEMO_MAX: Final = 10_000  # decisions that a policy remembers

# The server.
SERVER_HEAD_BYTES_MAX: Final = 16 * 1024  # of the first line and the headers of a request
SERVER_BODY_BYTES_MAX: Final = 1024 * 1024
SERVER_LOAD_BYTES_MAX: Final = 32 * 1024 * 1024  # bodies that hold data
SERVER_BODIES_BYTES_MAX: Final = 1024 * 1024 * 1024  # of all bodies that a process holds
SERVER_MCP_BYTES_MAX: Final = 4 * 1024 * 1024
SERVER_MCP_ANSWER_BYTES_MAX: Final = 1024 * 1024  # of one tool; longer ones lose rows
SERVER_BODY_MS_MAX: Final = 60_000  # until a body must have come
SERVER_HEAD_MS_MAX: Final = 30_000  # until a head must have come
SERVER_CONNECTIONS_MAX: Final = 4_096  # open at once, per process
SERVER_KEEP_ALIVE_MS: Final = 75_000  # that a quiet connection stays open
SERVER_QUERY_MS_MAX: Final = 30_000
SERVER_THREADS_MAX: Final = 32  # that run engine calls, per process
SERVER_QUEUE_MAX: Final = 256  # requests that wait for such a thread
SERVER_ACTOR_WRITES_MAX: Final = 16  # writes of one actor under way
SERVER_ACTOR_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024  # of all these requests together
SERVER_STREAMS_MAX: Final = 8  # exports under way, per process
SERVER_CHUNK_BYTES_MAX: Final = 64 * 1024  # of an export, sent at once
SERVER_BLOB_CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
SERVER_GZIP_BYTES_MIN: Final = 4 * 1024  # smaller answers are sent as they are
CONSOLE_EDGES_MAX: Final = 50_000  # of one type and direction that the console is given at once
SERVER_OPEN_WAIT_MS_MAX: Final = 30_000  # that a request waits for a graph that is being opened
SERVER_OPENING_MAX: Final = 4  # graphs that are opened at once
SERVER_RETRY_MS_MIN: Final = 1_000  # until a graph that did not open is tried again
SERVER_RETRY_MS_MAX: Final = 300_000
SERVER_RELOAD_MS: Final = 2_000  # between looks at the files of stored queries
SERVER_TELL_MS: Final = 10_000  # between looks at what metrics tell of a process
SERVER_WORKERS_MAX: Final = 64
STORED_QUERIES_MAX: Final = 1_000  # of one graph
