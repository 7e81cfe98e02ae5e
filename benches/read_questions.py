"""What `read.py` asks, once in each language; a text of None: that engine is not asked."""

from __future__ import annotations

from typing import NamedTuple

DIMENSION = 32


class Question(NamedTuple):
    """`about` names the parameter (see `read_data.parameters`); `rows_only`: answers of engines may
    differ, because each has its own idea of relevance."""

    name: str
    group: str
    about: str
    ours: str
    sql: str | None = None
    cypher: str | None = None
    rows_only: bool = False


WALKS, TABLES, SEARCHES, STAGES = "walks", "tables", "searches", "stages"

QUESTIONS = (
    Question(
        "point lookup",
        WALKS,
        "person",
        "match { $p: Person { name: $x } } return { $p.name, $p.age }",
        "SELECT name, age FROM person WHERE name = $1",
        "MATCH (p:Person {name: $x}) RETURN p.name, p.age",
    ),
    Question(
        "1 hop",
        WALKS,
        "person",
        "match { $p: Person { name: $x }  $p knows $q } return { $q.name }",
        "SELECT b FROM knows WHERE a = $1",
        "MATCH (p:Person {name: $x})-[:Knows]->(q) RETURN q.name",
    ),
    Question(
        "1 hop back",
        WALKS,
        "person",
        "match { $p: Person { name: $x }  $q knows $p } return { $q.name }",
        "SELECT a FROM knows WHERE b = $1",
        "MATCH (p:Person {name: $x})<-[:Knows]-(q) RETURN q.name",
    ),
    Question(
        "2 hops",
        WALKS,
        "person",
        "match { $p: Person { name: $x }  $p knows $m  $m knows $q } return { $q.name }",
        "SELECT k2.b FROM knows k1 JOIN knows k2 ON k1.b = k2.a WHERE k1.a = $1",
        "MATCH (p:Person {name: $x})-[:Knows]->(m)-[:Knows]->(q) RETURN q.name",
    ),
    Question(
        "3 hops, count",
        WALKS,
        "person",
        "match { $p: Person { name: $x }  $p knows $m  $m knows $r  $r knows $q } "
        "return { count($q) as n }",
        "SELECT count(*) FROM knows k1 JOIN knows k2 ON k1.b = k2.a "
        "JOIN knows k3 ON k2.b = k3.a WHERE k1.a = $1",
        "MATCH (p:Person {name: $x})-[:Knows]->(m)-[:Knows]->(r)-[:Knows]->(q) RETURN count(*)",
    ),
    Question(
        "filtered 2 hops, count",
        WALKS,
        "city",
        "match { $p: Person { city: $x }  $p knows $m  $m knows $q  $q.age > 60 } "
        "return { count($q) as n }",
        "SELECT count(*) FROM person p JOIN knows k1 ON k1.a = p.name JOIN knows k2 "
        "ON k1.b = k2.a JOIN person q ON q.name = k2.b WHERE p.city = $1 AND q.age > 60",
        "MATCH (p:Person {city: $x})-[:Knows]->(m)-[:Knows]->(q) WHERE q.age > 60 RETURN count(*)",
    ),
    Question(
        "top 10 by degree",
        WALKS,
        "nothing",
        "match { $p: Person  $p knows $q } return { $p.name, count($q) as n } "
        "order { n desc } limit 10",
        "SELECT a, count(*) AS n FROM knows GROUP BY a ORDER BY n DESC, a LIMIT 10",
        "MATCH (p:Person)-[:Knows]->(q) RETURN p.name, count(*) AS n "
        "ORDER BY n DESC, p.name LIMIT 10",
    ),
    Question(
        "edges to nodes, group by age",
        WALKS,
        "nothing",
        "match { $p: Person  $p knows $q } return { $p.age, count($q) as n }",
        "SELECT age, count(*) FROM knows JOIN person ON name = a GROUP BY age",
        "MATCH (p:Person)-[:Knows]->(q) RETURN p.age, count(*)",
    ),
    Question(
        "filter, count",
        TABLES,
        "score",
        "match { $p: Person  $p.score > $x } return { count(*) as n }",
        "SELECT count(*) FROM person WHERE score > $1",
        "MATCH (p:Person) WHERE p.score > $x RETURN count(*)",
    ),
    Question(
        "two filters, group by age",
        TABLES,
        "score",
        "match { $p: Person  $p.score > $x  $p.age < 30 } return { $p.age, count(*) as n }",
        "SELECT age, count(*) FROM person WHERE score > $1 AND age < 30 GROUP BY age",
        "MATCH (p:Person) WHERE p.score > $x AND p.age < 30 RETURN p.age, count(*)",
    ),
    Question(
        "group by age: count, avg",
        TABLES,
        "nothing",
        "match { $p: Person } return { $p.age, count(*) as n, avg($p.score) as a }",
        "SELECT age, count(*), avg(score) FROM person GROUP BY age",
        "MATCH (p:Person) RETURN p.age, count(*), avg(p.score)",
    ),
    Question(
        "group by city: count, avg",
        TABLES,
        "nothing",
        "match { $p: Person } return { $p.city, count(*) as n, avg($p.age) as a }",
        "SELECT city, count(*), avg(age) FROM person GROUP BY city",
        "MATCH (p:Person) RETURN p.city, count(*), avg(p.age)",
    ),
    Question(
        "distinct age",
        TABLES,
        "nothing",
        "match { $p: Person } return distinct { $p.age }",
        "SELECT DISTINCT age FROM person",
        "MATCH (p:Person) RETURN DISTINCT p.age",
    ),
    Question(
        "sum, min, max",
        TABLES,
        "nothing",
        "match { $p: Person } "
        "return { sum($p.age) as s, min($p.score) as lo, max($p.score) as hi }",
        "SELECT sum(age), min(score), max(score) FROM person",
        "MATCH (p:Person) RETURN sum(p.age), min(p.score), max(p.score)",
    ),
    Question(
        "top 10 by score",
        TABLES,
        "nothing",
        "match { $p: Person } return { $p.name, $p.score } order { $p.score desc } limit 10",
        "SELECT name, score FROM person ORDER BY score DESC, name LIMIT 10",
        "MATCH (p:Person) RETURN p.name, p.score ORDER BY p.score DESC, p.name LIMIT 10",
    ),
    Question(
        "contains, count",
        TABLES,
        "nothing",
        'match { $p: Person  $p.email contains "77@" } return { count(*) as n }',
        "SELECT count(*) FROM person WHERE contains(email, '77@')",
        "MATCH (p:Person) WHERE p.email CONTAINS '77@' RETURN count(*)",
    ),
    Question(
        "count distinct text",
        TABLES,
        "nothing",
        "match { $p: Person } return { count(distinct $p.email) as n }",
        "SELECT count(DISTINCT email) FROM person",
        "MATCH (p:Person) RETURN count(DISTINCT p.email)",
    ),
    Question(
        "group by unique text, top 5",
        TABLES,
        "nothing",
        "match { $p: Person } return { $p.email, count(*) as n } order { n desc } limit 5",
        "SELECT email, count(*) AS n FROM person GROUP BY email ORDER BY n DESC, email LIMIT 5",
        "MATCH (p:Person) RETURN p.email, count(*) AS n ORDER BY n DESC, p.email LIMIT 5",
    ),
    Question(
        "edge filter, count",
        TABLES,
        "nothing",
        "match { $p: Person  $p $k: knows $q  $k.since > 2010 } return { count(*) as n }",
        "SELECT count(*) FROM knows WHERE since > 2010",
        "MATCH ()-[k:Knows]->() WHERE k.since > 2010 RETURN count(*)",
    ),
    Question(
        "group edges by since",
        TABLES,
        "nothing",
        "match { $p: Person  $p $k: knows $q } return { $k.since, count(*) as n }",
        "SELECT since, count(*) FROM knows GROUP BY since",
        "MATCH ()-[k:Knows]->() RETURN k.since, count(*)",
    ),
    Question(
        "vector top 10, filter",
        SEARCHES,
        "vector",
        "match { $p: Person  $p.age > 45 } return { $p.name } "
        "order { nearest($p.vec, $x) } limit 10",
        "SELECT name FROM person WHERE age > 45 ORDER BY "
        f"array_cosine_distance(vec, $1::FLOAT[{DIMENSION}]) LIMIT 10",
        "MATCH (p:Person) WHERE p.age > 45 RETURN p.name ORDER BY "
        f"array_cosine_similarity(p.vec, CAST($x, 'FLOAT[{DIMENSION}]')) DESC LIMIT 10",
    ),
    Question(
        "text top 10",
        SEARCHES,
        "word",
        "match { $p: Person } return { $p.name } order { bm25($p.bio, $x) } limit 10",
        rows_only=True,
    ),
    Question(
        "vector and text, 1 hop",
        SEARCHES,
        "vector and word",
        "match { $p: Person  $p knows $q } return { $p.name, $q.name } "
        "order { rrf(nearest($p.vec, $x), bm25($p.bio, $y)) } limit 10",
        rows_only=True,
    ),
    Question(
        "friends of a city, count",
        STAGES,
        "city",
        "match { $p: Person { city: $x }  $p knows $q } return { count($q) as n }",
        "SELECT count(*) FROM person JOIN knows ON a = name WHERE city = $1",
        "MATCH (p:Person {city: $x})-[:Knows]->(q) RETURN count(*)",
    ),
    Question(
        "the same in two stages",
        STAGES,
        "city",
        "match { $p: Person { city: $x } } with { $p } match { $p knows $q } "
        "return { count($q) as n }",
        "WITH p AS (SELECT name FROM person WHERE city = $1) "
        "SELECT count(*) FROM p JOIN knows ON a = name",
        "MATCH (p:Person {city: $x}) WITH p MATCH (p)-[:Knows]->(q) RETURN count(*)",
    ),
    Question(
        "mean degree",
        STAGES,
        "nothing",
        "match { $p: Person  $p knows $q } with { $p, count($q) as n } return { avg(n) as a }",
        "SELECT avg(n) FROM (SELECT count(*) AS n FROM knows GROUP BY a)",
        "MATCH (p:Person)-[:Knows]->(q) WITH p, count(q) AS n RETURN avg(n)",
    ),
    Question(
        "top 10 by degree, their friends",
        STAGES,
        "nothing",
        "match { $p: Person  $p knows $q } with { $p, count($q) as n } order { n desc } limit 10 "
        "match { $p knows $f } return { $p.name, n, count($f) as friends, max($f.age) as oldest }",
        "WITH t AS (SELECT a, count(*) AS n FROM knows GROUP BY a ORDER BY n DESC, a LIMIT 10) "
        "SELECT t.a, n, count(*), max(age) FROM t JOIN knows k ON k.a = t.a "
        "JOIN person ON name = b GROUP BY t.a, n",
        "MATCH (p:Person)-[:Knows]->(q) WITH p, count(q) AS n ORDER BY n DESC, p.name LIMIT 10 "
        "MATCH (p)-[:Knows]->(f) RETURN p.name, n, count(*), max(f.age)",
    ),
    Question(
        "two conditions, or",
        STAGES,
        "city",
        "match { $p: Person  $p.city = $x or $p.age = 7 } return { $p.name as n }",
        "SELECT name AS n FROM person WHERE city = $1 OR age = 7",
        "MATCH (p:Person) WHERE p.city = $x OR p.age = 7 RETURN p.name AS n",
    ),
    Question(
        "two conditions, union",
        STAGES,
        "city",
        "match { $p: Person { city: $x } } return { $p.name as n } "
        "union match { $p: Person { age: 7 } } return { $p.name as n }",
        "SELECT name AS n FROM person WHERE city = $1 "
        "UNION SELECT name AS n FROM person WHERE age = 7",
        "MATCH (p:Person {city: $x}) RETURN p.name AS n "
        "UNION MATCH (p:Person {age: 7}) RETURN p.name AS n",
    ),
)
GROUPS = (WALKS, TABLES, SEARCHES, STAGES)
BY_NAME = {question.name: question for question in QUESTIONS}
TYPES = {
    "person": "$x: String",
    "city": "$x: String",
    "score": "$x: F64",
    "vector": f"$x: Vector({DIMENSION})",
    "word": "$x: String",
    "vector and word": f"$x: Vector({DIMENSION}), $y: String",
    "nothing": "",
}
