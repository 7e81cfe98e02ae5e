"""Context for a language model: hybrid search finds documents, edges bring whom to ask.

python examples/rag.py
"""

import re
import tempfile
import zlib
from collections.abc import Sequence

from omnigraph import Graph

SCHEMA = """
node Doc { title: String @key  body: String @index  vec: Vector(64) @embed(body) @index }
node Team { name: String @key  mail: String }
edge OwnedBy: Doc -> Team
"""
CONTEXT = """
query context($words: String) {
    match { $d: Doc  $d ownedBy $team }
    return { $d.title as title, $d.body as text, $team.mail as ask }
    order { rrf(nearest($d.vec, $words), bm25($d.body, $words)) }
    limit 2
}
"""
DOCS = {
    "Returns": ("Items can be returned within thirty days, unused and in their box.", "support"),
    "Shipping": ("Parcels leave our house within a day, abroad within three days.", "logistics"),
    "Warranty": ("Broken devices are repaired for free during two years.", "support"),
}


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Your model goes here. This one hashes words, so that the program needs no network."""
    vectors = [[0.01] * 64 for _ in texts]
    for text, vector in zip(texts, vectors, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word[:5].encode()) % 64] += 1.0
    return vectors


def main(folder: str) -> None:
    with Graph.init(f"{folder}/rag.omni", SCHEMA, embedder=embed) as graph:
        docs = [{"title": title, "body": body} for title, (body, _) in DOCS.items()]
        teams = [{"name": one, "mail": f"{one}@shop"} for one in ("support", "logistics")]
        owners = [{"from": title, "to": team} for title, (_, team) in DOCS.items()]
        graph.load({"Doc": docs, "Team": teams, "OwnedBy": owners}, mode="append")
        for question in ("can items be returned", "who repairs a broken device"):
            found = graph.query(CONTEXT, params={"words": question})
            print(f"{question}? {found[0]['title']}, ask {found[0]['ask']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
