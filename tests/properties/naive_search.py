"""What searches find and how they score, by loops over texts and vectors.

The words of the random texts are those of `search_cases`, so stems and common words are told by a
table here; nothing is shared with the engine.
"""

from __future__ import annotations

import math
import re

from omnigraph.compiler.query import ir

COMMON = {"the", "and", "of"}
STEMS = {"graphs": "graph", "nodes": "node"}  # every other word is its own stem


def searched(naive, expr, env):
    """The value of a search for one row; `naive` has all nodes, and the rows of the match."""
    if isinstance(expr, ir.Rrf):
        return _fused(naive, expr, env)
    query = naive.value(expr.query, env)
    entity = env[expr.field.var]
    if entity is None or query is None:
        return None
    value = entity.get(expr.field.prop)
    if isinstance(expr, ir.Nearest):
        return None if value is None else _distance(value, query)
    if isinstance(expr, ir.Bm25):
        kind = naive.variables[expr.field.var].type_name
        texts = [node.get(expr.field.prop) for node in naive.nodes[kind]]
        return _relevance([one for one in texts if one is not None], value, query)
    if value is None:
        return None
    said, words = _words(query), _words(value)
    match expr.kind:
        case ir.TextMatchKind.SEARCH:
            return _found(query, words)
        case ir.TextMatchKind.PHRASE:
            return bool(said) and _in_a_row(said, words)
        case _:
            most = 2 if expr.max_edits is None else naive.value(expr.max_edits, env)
            return any(_edits(a, b) <= most for a in said for b in words)


def _words(text):
    return re.findall(r"[^\W_]+", text.lower())


def _in_a_row(said, words, *, starred=False):
    for at in range(len(words) - len(said) + 1):
        here = words[at : at + len(said)]
        last = here[-1].startswith(said[-1]) if starred else here[-1] == said[-1]
        if here[:-1] == said[:-1] and last:
            return True
    return False


def _found(query, words):
    """`search`: all that has a plus, nothing that has a minus, and else one of the others."""
    signs = {"+": [], "": [], "-": []}
    common = []
    for sign, phrase, word in re.findall(r'([+-]?)(?:"([^"]*)"|(\S+))', query):
        said = _words(phrase or word)
        hit = _in_a_row(said, words, starred=(phrase or word).endswith("*"))
        if not sign and said[0] in COMMON and not phrase:
            common.append(hit)
        else:
            signs[sign].append(hit)
    if any(signs["-"]):
        return False
    if signs["+"]:
        return all(signs["+"])
    others = signs[""] or common
    return any(others) if others else bool(signs["-"])


def _relevance(texts, text, query):
    if text is None:
        return None

    def ranked(some):
        return [STEMS.get(word, word) for word in _words(some) if word not in COMMON]

    held = [ranked(one) for one in texts]
    mean = sum(map(len, held)) / len(held) if any(held) else 1.0
    wanted = " ".join(part for part in query.split() if not part.startswith("-"))
    mine, score = ranked(text), None
    for term in dict.fromkeys(ranked(wanted)):
        often, holding = mine.count(term), sum(term in one for one in held)
        if often:
            rarity = math.log(1 + (len(held) - holding + 0.5) / (holding + 0.5))
            length = 1.2 * (0.25 + 0.75 * len(mine) / mean)
            score = (score or 0.0) + rarity * often * 2.2 / (often + length)
    return score


def _edits(a, b):
    before = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        now = [i]
        for j, other in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (one != other)))
        before = now
    return before[-1]


def _distance(a, b):
    sizes = math.hypot(*a) * math.hypot(*b)
    return 1.0 if sizes == 0 else 1 - sum(x * y for x, y in zip(a, b, strict=True)) / sizes


def _fused(naive, expr, env):
    k, total = naive.value(expr.k, env), None
    for ranking in (expr.first, expr.second):
        var = ranking.field.var
        scores = {
            row[var]["id"]: searched(naive, ranking, row)
            for row in naive.matched
            if row[var] is not None
        }
        down = -1 if isinstance(ranking, ir.Bm25) else 1
        places = sorted((score * down, id_) for id_, score in scores.items() if score is not None)
        ids = [id_ for _, id_ in places]
        if env[var] is not None and env[var]["id"] in ids:
            total = (total or 0.0) + 1 / (k + ids.index(env[var]["id"]) + 1)
    return total
