"""Conformance cases that we answer differently on purpose: case name -> why.

The cases live outside the repository and are never edited; where one contradicts the design, the
design wins and the case is listed here. A listed case is expected to fail, so that an entry which
has become untrue is noticed.
"""

from __future__ import annotations

EXCEPTIONS: dict[str, str] = {
    # --- exec.jsonl ---
    "unbound_parameter_matches_all": "a missing required parameter is an error (design, section 6)",
    "branch_path_prefix_collision": (
        "branch names never meet Lance's naming rules, so feature and feature/child can coexist"
    ),
    "e2e_update_edge_type_is_an_error": "edges can be updated (issue 3, so T16 guards endpoints)",
    "search_phrase_search_is_documented_fts_fallback": (
        "match_text is a phrase match (design, section 6): 'networks layers' is no phrase of it"
    ),
    "search_fuzzy_does_not_match_under_default_tokenizer": (
        "fuzzy respects edit distance (design, section 6): one letter more is a match"
    ),
    "search_bm25_full_rank_order": (
        "the three titles score the same, and ties are broken by id (design, section 6)"
    ),
    "search_rrf_fuses_two_fts_fields": "ranks among equal scores are by id (design, section 6)",
    "search_rrf_fuses_two_vector_queries": (
        "vectors are compared by cosine distance (issue 5), and ranks are not cut off at the limit"
    ),
    "key_temporal_ids_are_canonical": (
        "export spells dates and times as text, as diff and the feed do (design, section 6); "
        "the ids of the case are as it wants them"
    ),
    # --- query_check.jsonl ---
    "params_undeclared_null_is_bound": (
        "a value that the query does not declare is an error that names the nearest (issue 16)"
    ),
    "params_undeclared_object_rejected": (
        "refused because it is not declared, whatever it is: records can be declared (issue 16)"
    ),
    "mutation_update_edge_not_supported": "edges can be updated (issue 3)",
    "grammar_negative_integer_literal": "negative numbers are in the language (issue 3)",
    "grammar_exponent_float": "exponents are in the language (issue 3)",
    "grammar_null_literal": "the null literal is in the language (issue 3)",
    "grammar_and_keyword": "and, or, not and parentheses are in the language (issue 3)",
    "grammar_mutation_predicate_conjunction": "where takes several predicates (issue 3)",
    "grammar_count_star": "count(*) is in the language (issue 3)",
    "grammar_param_default_value": "parameters have defaults (issue 16)",
    "unbounded_traversal_is_disabled": "hops may be unbounded, each node is met once (issue 16)",
    "parse_starts_with_is_rejected_in_mutation_predicate": (
        "every operator may stand in the where of a mutation (issue 16)"
    ),
    # --- schema_parse.jsonl ---
    "identity_allocation_is_canonical": (
        "our format finds a table by its manifest row, so IR v1 needs no counted identities"
    ),
    # --- schema_plan.jsonl ---
    "code_add_property_level_unique": "@unique can be added, checked against all data (issue 3)",
    "code_add_body_unique": "@unique can be added, checked against all data (issue 3)",
    "code_remove_property_level_index": "constraints other than @key can be removed (issue 3)",
    "code_remove_range": "constraints other than @key can be removed (issue 3)",
    "code_change_range_bounds": "a range can be removed and added, so it can be changed (issue 3)",
    "refused_while_other_branch_exists": "each branch has its own schema (issue 15)",
    # --- cli.jsonl ---
    "lint_http_target_rejected": (
        "lint can be asked of a served graph too (issue 19), so the hint is to pass --server"
    ),
    "schema_apply_with_branch": "each branch has its own schema (issue 15)",
    "init_ok": "the schema lives in __manifest in our format; there is no _schema.pg to look for",
    "schema_plan_unsupported_exits_0": "I32 to I64 loses nothing, so we support it (issue 3)",
    "schema_apply_unsupported": "I32 to I64 loses nothing, so we support it (issue 3)",
    "cluster_validate_ok": "needs the cluster control plane, a later issue",
    "cluster_validate_json": "needs the cluster control plane, a later issue",
    "cluster_validate_future_field": "needs the cluster control plane, a later issue",
    "cluster_status_missing_state": "needs the cluster control plane, a later issue",
    "cluster_plan_reads_state": "needs the cluster control plane, a later issue",
    "cluster_apply_missing_state": "needs the cluster control plane, a later issue",
    "cluster_import_bootstraps": "needs the cluster control plane, a later issue",
}
