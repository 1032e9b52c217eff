"""Makes tables, asks DuckDB queries over them, and prints each with its answer, a JSON object a line.

    queries.py random FOLDER SEED COUNT     random tables and queries
    queries.py clickbench FOLDER QUERIES ROWS   a table with the columns of ClickBench, and queries of a file, with lines of `---` between them
    queries.py ask FOLDER QUERIES           the tables of a folder (NAME.parquet, or NAME.tbl with NAME.sql for its columns), and queries of a file, with lines of `---` between them
"""

import datetime
import decimal
import json
import os
import random
import sys

import duckdb

TABLES = {"t": "t/*.parquet", "u": "u.csv", "v": "v.parquet"}


def plain(value):
    """A value as JSON has it: numbers as they are, all else as text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)


def answer(connection, sql):
    return [[plain(value) for value in row] for row in connection.execute(sql).fetchall()]


def make(connection, folder, rng):
    """Tables of a few thousand rows with nulls, values that occur often, and keys that are missing."""
    os.makedirs(f"{folder}/t")
    connection.execute(f"SELECT setseed({rng.random()})")
    rows = rng.choice([0, 1, 700, 5000])
    connection.execute(f"""
        CREATE TABLE t AS SELECT
            i AS id, (random() * 20)::INT AS k, CASE WHEN random() < 0.1 THEN NULL ELSE ['oslo', 'rome', 'lima', 'Åre', ''][1 + (random() * 4)::INT] END AS city,
            CASE WHEN random() < 0.1 THEN NULL ELSE round(random() * 100 - 30, 3) END AS price,
            (random() * 10000 - 2000)::DECIMAL(10, 2) AS amount, DATE '2024-01-01' + (random() * 400)::INT AS d,
            TIMESTAMP '2024-01-01 00:00:00' + INTERVAL (i * 977) MINUTE AS ts, random() < 0.3 AS flag, (random() * 1000000000000)::BIGINT AS big
        FROM range({rows}) AS r(i)""")
    for file in range(3):
        at = f"{folder}/t/{file}.parquet"
        connection.execute(f"COPY (SELECT * FROM t WHERE id % 3 = {file}) TO '{at}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    connection.execute("CREATE TABLE u AS SELECT (random() * 25)::BIGINT AS k, 'name ' || (random() * 9)::INT AS name, round(random() * 8, 2) AS w FROM range(60)")
    connection.execute(f"COPY u TO '{folder}/u.csv' (HEADER)")
    connection.execute("CREATE TABLE v AS SELECT * FROM (VALUES ('oslo', 'norway', 700), ('rome', 'italy', 2800), ('Åre', 'sweden', 3), (NULL, 'nowhere', 0), ('paris', 'france', 2100)) AS v(city, country, pop)")
    connection.execute(f"COPY v TO '{folder}/v.parquet' (FORMAT parquet)")


class Draft:
    """A query, with the columns that it may name by type."""

    def __init__(self, rng, columns):
        self.rng, self.columns = rng, columns

    def number(self, depth=2):
        rng = self.rng
        if depth == 0 or rng.random() < 0.4:
            return rng.choice(self.columns["number"])
        pick = rng.randrange(9)
        one, other = self.number(depth - 1), self.number(depth - 1)
        return [
            lambda: f"({one} + {other})",
            lambda: f"({one} - {rng.randrange(50)})",
            lambda: f"({one} * {rng.choice(['2', '0.5', '-1'])})",
            lambda: f"abs({one})",
            lambda: f"coalesce({one}, {self.constant(9)})",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {other} END",
            lambda: f"length({self.text(depth - 1)})",
            lambda: f"CAST(extract({rng.choice(['year', 'month', 'day'])} FROM {self.date()}) AS BIGINT)",
            lambda: f"CAST({one} AS DOUBLE)",
        ][pick]()

    def constant(self, below):
        """A whole number, or a decimal."""
        whole = self.rng.randrange(below)
        return self.rng.choice([whole, f"{whole}.{self.rng.choice(['0', '5', '25', '125'])}"])

    def text(self, depth=1):
        rng = self.rng
        if depth == 0 or rng.random() < 0.5:
            return rng.choice(self.columns["text"])
        one = self.text(depth - 1)
        return rng.choice([f"upper({one})", f"lower({one})", f"coalesce({one}, 'none')", f"substr({one}, 1, 2)", f"({one} || '!')", f"trim({one})", f"replace({one}, 'o', '0')"])

    def date(self):
        return self.rng.choice(self.columns["date"])

    def condition(self, depth=2):
        rng, pick = self.rng, self.rng.random()
        if depth > 0 and pick < 0.3:
            word = rng.choice(["AND", "OR"])
            return f"({self.condition(depth - 1)} {word} {self.condition(depth - 1)})"
        if depth > 0 and pick < 0.4:
            return f"NOT ({self.condition(depth - 1)})"
        compared = rng.choice(["=", "<>", "<", "<=", ">", ">="])
        return rng.choice([
            lambda: f"{self.number(1)} {compared} {self.constant(60)}",
            lambda: f"{rng.choice(self.columns['number'])} {compared} {rng.choice(self.columns['number'])}",
            lambda: f"{self.text()} {compared} 'oslo'",
            lambda: f"{self.text()} {rng.choice(['', 'NOT '])}LIKE '{rng.choice(['%o%', 'r%', '_o__', '%', ''])}'",
            lambda: f"{self.text()} IN ('oslo', 'lima', 'LIMA')",
            lambda: f"{rng.choice(self.columns['number'])} BETWEEN 3 AND {self.constant(70)}",
            lambda: f"{rng.choice(self.columns['text'] + self.columns['number'])} IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"{self.date()} {compared} DATE '2024-{rng.randrange(1, 13):02}-11'",
            lambda: f"{rng.choice(self.columns['number'])} {rng.choice(['', 'NOT '])}IN (1, 2, 5, {self.constant(30)})",
        ])()

    def key(self):
        rng = self.rng
        return rng.choice([self.text, lambda: self.columns["number"][0], lambda: f"({self.columns['number'][0]} % 3)", lambda: f"date_trunc('month', {self.date()})", lambda: f"({self.condition(1)})"])()

    def aggregate(self):
        rng = self.rng
        where = f" FILTER (WHERE {self.condition(1)})" if rng.random() < 0.15 else ""
        return rng.choice([
            lambda: f"count(*){where}",
            lambda: f"count({self.text()}){where}",
            lambda: f"sum({self.number(1)}){where}",
            lambda: f"avg({self.number(1)}){where}",
            lambda: f"min({rng.choice([self.number(1), self.text(), self.date()])}){where}",
            lambda: f"max({rng.choice([self.number(1), self.text(), self.date()])}){where}",
            lambda: f"count(DISTINCT {rng.choice([self.text(), self.columns['number'][0]])})",
            # Of decimals it is one there, of as many digits.
            lambda: f"median({rng.choice([column for column in self.columns['number'] if column not in ('amount', 't.amount', 'paid')])})",
            lambda: f"stddev({rng.choice(self.columns['number'])})",
        ])()


# What was wrong once, and what random queries seldom are.
# At the end of a query whose rows are compared in their order.
IN_ORDER = "/* in order */"

FIXED = [
    # A decimal beside a float that no decimal has room for.
    "SELECT count(*) FILTER (WHERE price * 1e-18 > 0.0) AS a, count(*) FILTER (WHERE price * 1e18 > 0.5) AS b, sum(coalesce(price * 1e18, 0.5)) AS c, max(greatest(price * 1e-18, -0.5)) AS d, count(nullif(price * 1e18, 0.5)) AS e FROM t",
    "SELECT id FROM t WHERE price BETWEEN 0.125 AND 0.9 OR price * 1e17 IN (0.5, 1.5) OR price * 1e18 > amount",
    "SELECT id, CASE price * 1e18 WHEN 0.5 THEN 1.5 ELSE 0.25 END AS c, CASE WHEN id < 9 THEN price * 1e18 ELSE 0.5 END AS d FROM t",
    "SELECT price * 1e19 AS x FROM t UNION ALL SELECT amount FROM t UNION ALL SELECT 0.5 FROM v",
    "SELECT 0.5 AS x FROM v UNION SELECT price * 1e19 FROM t",
    "SELECT t.id, u.w FROM t JOIN u ON t.amount = u.w * 1e18",
    "SELECT k, w FROM u WHERE w > 4.125 AND w * 1e18 NOT IN (0.5, 7.25) AND w IN (SELECT amount FROM t UNION ALL SELECT w FROM u)",
    "SELECT k, w FROM u WHERE w * 1e18 NOT IN (0.5, 1.5)",
    "SELECT k, avg(price) AS m, sum(big) AS s FROM t GROUP BY k HAVING avg(price) > 10.5 AND count(*) > 3 AND sum(big) > 1000 AND max(price) * 1e18 > 0.5",
    "SELECT k, sum(amount) AS s, sum(big) AS b FROM t GROUP BY k HAVING sum(amount) >= 100.5 AND sum(big) <> 77 AND avg(price) < 60.25",
    "SELECT k, CAST(sum(amount) AS DECIMAL(12, 0)) AS s, CAST(max(ts) AS DATE) AS d FROM t GROUP BY k ORDER BY s DESC, k LIMIT 6",
    "SELECT count(*), sum(x) FROM (SELECT g, x FROM (SELECT CAST(amount AS DECIMAL(10, 0)) AS g, amount AS x FROM t GROUP BY amount) AS a QUALIFY row_number() OVER (PARTITION BY g ORDER BY x) = 1) AS b",
    "SELECT t.id, u.name, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.price > 5 AND u.w < 6",
    "SELECT t.id, t.k, u.k, u.w FROM t FULL JOIN u ON t.k = u.k AND t.id < 100 AND u.w > 4",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND t.price > 0)",
    'SELECT -id AS "Price", price AS p FROM t ORDER BY "Price" LIMIT 5',
    'SELECT "Double" + 1 AS x FROM (SELECT id * 2 AS "Double" FROM t) AS a',
    "WITH c AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT a.k, a.n, b.n FROM c AS a JOIN c AS b ON a.k = b.k WHERE a.n > 1",
    "WITH c AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT a.k, a.n FROM c AS a JOIN (SELECT k FROM c ORDER BY n DESC, k LIMIT 3) AS b ON a.k = b.k",
    "WITH t AS (SELECT k + 1 AS k FROM t) SELECT count(*), sum(k) FROM t",
    "SELECT count(*) FROM t AS a, v AS b WHERE a.id < 50",
    "SELECT a.city, b.city FROM t AS a JOIN v AS b ON a.city = b.city AND a.id < 40",
    "SELECT city, price FROM t WHERE price IS NOT NULL ORDER BY price DESC, id LIMIT 3 OFFSET 2",
    "SELECT sum(n) FROM (SELECT count(*) AS n FROM t GROUP BY city LIMIT 100) AS a",
    "SELECT k, price FROM (SELECT k, price, id FROM t ORDER BY price DESC NULLS LAST, id LIMIT 50) AS a WHERE k > 3",
    "SELECT k, percentile_cont(0.9) WITHIN GROUP (ORDER BY price) AS p, percentile_cont(0.9) WITHIN GROUP (ORDER BY id DESC) AS q, percentile_cont(0.3) WITHIN GROUP (ORDER BY CAST(id AS DOUBLE) DESC) FILTER (WHERE id < 300) AS r FROM t GROUP BY k",
    "SELECT id, city ~~ 'o%' AS a, city !~~ '_o%' AS b, city LIKE replace(city, 'o', '_') AS c, d < TIMESTAMP '1500-01-01 00:00:00' AS e FROM t WHERE d < TIMESTAMP '2024-09-01 12:00:00' OR city LIKE 'r!%%' ESCAPE '!'",
    "SELECT upper(city) AS c, count(*) % 7 AS m, round(avg(price), 1) AS a, 'x' AS x, CASE WHEN sum(price) > 100 THEN city ELSE 'less' END AS w FROM t GROUP BY city HAVING count(*) % 2 = 1 OR city = 'oslo' ORDER BY round(avg(price), 1) DESC, c /* in order */",
    "SELECT k + 1 AS next, sum(price) / count(price) AS m, k FROM t GROUP BY k ORDER BY sum(price) / count(price) DESC, k LIMIT 5 /* in order */",
    "SELECT k FROM t GROUP BY k HAVING sqrt(count(*)) > 5 ORDER BY count(*) * 2, k LIMIT 3 /* in order */",
    "SELECT count(*) AS n, k FROM t GROUP BY k ORDER BY k LIMIT 0",
    "SELECT k, 1000 % (count(*) - 238) AS q FROM t GROUP BY k HAVING abs(count(*) - 238) > 0 ORDER BY k /* in order */",
    "SELECT count(*) AS n FROM t HAVING false",
    "SELECT sum(price) AS s FROM t HAVING 1 = 2 OR NULL",
    "SELECT n + 1 AS m FROM (SELECT count(*) AS n FROM t HAVING 1 < 2) AS a WHERE n >= 0",
    "SELECT (SELECT count(*) FROM t HAVING false) AS n, count(*) AS m FROM u",
    # Groups are left out in the first place, and not in the second one.
    "WITH g AS (SELECT k, count(*) AS n FROM t GROUP BY k) SELECT a.k, b.k AS l, b.n FROM (SELECT k FROM g WHERE n > 34 ORDER BY n % 3, k LIMIT 3) AS a RIGHT JOIN g AS b ON a.k = b.k",
    "SELECT k, max(price) FROM t GROUP BY k HAVING max(price) > (SELECT avg(price) FROM t)",
    "SELECT " + " + ".join(["k"] * 40) + " AS s FROM t WHERE " + " OR ".join(f"id = {at * 7}" for at in range(300)),
]

T = {"number": ["k", "price", "amount", "big", "id"], "text": ["city"], "date": ["d"]}
JOINED = {"number": ["t.k", "t.price", "t.amount", "u.w", "u.k"], "text": ["t.city", "u.name"], "date": ["t.d"]}
PLACED = {"number": ["t.k", "t.price", "v.pop", "t.amount"], "text": ["v.country", "t.city"], "date": ["t.d"]}


def grouped(draft, rng, source, order=True):
    keys = [draft.key() for _ in range(rng.choice([0, 1, 1, 2]))]
    aggregates = [draft.aggregate() for _ in range(rng.choice([1, 2, 3]))]
    columns = [f"{what} AS c{at}" for at, what in enumerate(keys + aggregates)]
    sql = f"SELECT {', '.join(columns)} FROM {source}"
    if rng.random() < 0.6:
        sql += f" WHERE {draft.condition()}"
    if keys:
        sql += f" GROUP BY {', '.join(str(1 + at) for at in range(len(keys)))}"
        if rng.random() < 0.3:
            sql += f" HAVING {rng.choice(['count(*) > 30', f'sum({draft.number(1)}) > 100', 'count(*) % 2 = 0'])}"
        if order and rng.random() < 0.5:
            by = [f"{1 + at}{rng.choice([' NULLS FIRST', ' DESC NULLS LAST', ' NULLS LAST'])}" for at in range(len(keys))]
            if len(aggregates) > 1 and rng.random() < 0.4:
                by.insert(0, f"{1 + len(keys)} {rng.choice(['DESC', 'ASC'])} NULLS LAST") if aggregates[0].startswith("count") else None
            return sql + f" ORDER BY {', '.join(by)} LIMIT {rng.choice([1, 3, 1000])}", True
    return sql, False


def drawn(rng):
    """A query, and whether its rows come in an order."""
    draft = Draft(rng, T)
    pick = rng.randrange(11)
    if pick == 0:
        columns = ", ".join(f"{what} AS c{at}" for at, what in enumerate([draft.number(), draft.text(), draft.number(), draft.date()]))
        return f"SELECT id, {columns} FROM t WHERE {draft.condition()}", False
    if pick == 1:
        end = f"ORDER BY {rng.choice(['price DESC NULLS LAST', 'city NULLS FIRST', 'amount'])}, id LIMIT {rng.choice([0, 5, 40])} OFFSET {rng.choice([0, 0, 7])}"
        return f"SELECT id, {draft.number()} AS c1, city FROM t WHERE {draft.condition()} {end}", True
    if pick in (2, 3):
        return grouped(draft, rng, "t")
    if pick == 4:
        how = rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return grouped(Draft(rng, JOINED), rng, f"t {how} u ON t.k = u.k")
    if pick == 5:
        how = rng.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
        draft = Draft(rng, PLACED)
        return f"SELECT t.id, v.country, t.city, {draft.number()} AS c3 FROM t {how} v ON t.city = v.city WHERE {draft.condition()}", False
    if pick == 6:
        both = [f"SELECT city, k, price, amount, d, big, id FROM t WHERE {draft.condition(1)}" for _ in range(2)]
        return grouped(draft, rng, f"({both[0]} UNION ALL {both[1]}) AS both_of_them")
    if pick == 7:
        return f"SELECT DISTINCT {draft.text()} AS c0, ({draft.condition(1)}) AS c1 FROM t WHERE {draft.condition(1)}", False
    if pick == 8:
        inner = f"SELECT city, k, count(*) AS n, sum(amount) AS paid, max(d) AS d FROM t WHERE {draft.condition(1)} GROUP BY city, k"
        outer = Draft(rng, {"number": ["n", "paid", "k"], "text": ["city"], "date": ["d"]})
        return grouped(outer, rng, f"({inner}) AS g")
    if pick == 9:
        test = rng.choice([
            "EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > 3)", "NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
            "k IN (SELECT k FROM u WHERE w > 4)", "price > (SELECT avg(price) FROM t)",
        ])
        return grouped(draft, rng, f"(SELECT * FROM t WHERE {test}) AS t")
    order = rng.choice(["id", "price DESC NULLS LAST, id", "d, id"])
    part = rng.choice(["city", "k", "city, k"])
    return f"SELECT id, city, k, price FROM t WHERE {draft.condition(1)} QUALIFY row_number() OVER (PARTITION BY {part} ORDER BY {order}) = 1", False


def tables_of(connection, folder):
    names = {}
    for file in sorted(os.listdir(folder)):
        name, kind = os.path.splitext(file)
        if kind == ".tbl":
            columns = open(f"{folder}/{name}.sql").read()
            connection.execute(f"CREATE TABLE {name} ({columns})")
            connection.execute(f"COPY {name} FROM '{folder}/{file}' (HEADER, DELIMITER ',', QUOTE '\"')")
            connection.execute(f"COPY {name} TO '{folder}/{name}.parquet' (FORMAT parquet)")
            names[name] = f"{name}.parquet"
        elif kind == ".parquet" and name not in names:
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{file}'")
            names[name] = file
    return names


def make_hits(connection, folder, rows):
    """A table with the columns of ClickBench that its queries look at, and values that are about as frequent."""
    connection.execute("SELECT setseed(0.5)")
    connection.execute(f"""
        CREATE TABLE hits AS SELECT
            (i * 7919 + 11)::BIGINT AS WatchID, CASE WHEN r1 < 0.3 THEN 62 ELSE (r2 * 50)::INT END::INT AS CounterID,
            (DATE '2013-07-01' + (r3 * 30)::INT)::DATE AS EventDate, TIMESTAMP '2013-07-01 00:00:00' + INTERVAL ((r3 * 30)::INT * 86400 + (r4 * 86399)::INT) SECOND AS EventTime,
            CASE WHEN i % 5000 = 7 THEN 435090932899640449 ELSE ((r5 * r5 * {rows} / 8)::BIGINT * 1000003) END AS UserID, (r6 * r6 * 200)::INT AS RegionID, (r7 * 3000)::INT AS ClientIP,
            CASE WHEN r8 < 0.02 THEN 'http://mail.google.ru/x' || (r2 * 40)::INT WHEN r8 < 0.95 THEN 'http://site' || (r2 * r6 * 300)::INT || '.com/page/' || (r5 * 20)::INT ELSE '' END AS URL,
            CASE WHEN r1 < 0.5 THEN 'https://www.ref' || (r3 * 30)::INT || '.org/a/b' WHEN r1 < 0.6 THEN 'http://q' || (r3 * 9)::INT || '.net' ELSE '' END AS Referer,
            CASE WHEN r4 < 0.1 THEN 'Google ' || (r5 * 30)::INT WHEN r4 < 0.9 THEN 'title ' || (r2 * 400)::INT ELSE '' END AS Title,
            CASE WHEN r6 < 0.6 THEN '' ELSE 'phrase ' || (r7 * r7 * 2000)::INT END AS SearchPhrase, CASE WHEN r6 < 0.6 THEN 0 ELSE (r8 * 6)::INT END::SMALLINT AS SearchEngineID,
            CASE WHEN r2 < 0.9 THEN 0 ELSE (r3 * 20)::INT END::SMALLINT AS AdvEngineID, (r5 * 2000)::SMALLINT AS ResolutionWidth, (r7 * 5)::SMALLINT AS MobilePhone,
            CASE WHEN r4 < 0.8 THEN '' ELSE 'model ' || (r1 * 40)::INT END AS MobilePhoneModel, (r8 < 0.2)::SMALLINT AS IsRefresh, (r7 < 0.1)::SMALLINT AS DontCountHits, (r1 * 8 - 1)::SMALLINT AS TraficSourceID,
            (r2 < 0.3)::SMALLINT AS IsLink, (r3 < 0.05)::SMALLINT AS IsDownload, ((r2 * r6 * 300)::BIGINT * 2654435761 % 1000000007)::BIGINT AS URLHash, (r4 * 20)::SMALLINT AS WindowClientWidth, (r6 * 9)::SMALLINT AS WindowClientHeight
        FROM (SELECT i, random() AS r1, random() AS r2, random() AS r3, random() AS r4, random() AS r5, random() AS r6, random() AS r7, random() AS r8 FROM range({rows}) AS r(i))""")
    connection.execute(f"COPY hits TO '{folder}/hits.parquet' (FORMAT parquet, ROW_GROUP_SIZE 20000)")


def main():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    what, folder = sys.argv[1:3]
    if what == "random":
        seed, count = int(sys.argv[3]), int(sys.argv[4])
        rng = random.Random(seed)
        make(connection, folder, rng)
        print(json.dumps({"tables": TABLES}))
        for sql in FIXED:
            print(json.dumps({"sql": sql, "ordered": "ORDER BY" in sql.split("FROM t")[-1] and "GROUP BY k HAVING" not in sql and ") AS" not in sql or sql.endswith(IN_ORDER), "rows": answer(connection, sql)}))
        while count > 0:
            sql, ordered = drawn(rng)
            try:
                rows = answer(connection, sql)
            except duckdb.Error:
                continue
            print(json.dumps({"sql": sql, "ordered": ordered, "rows": rows}))
            count -= 1
        return
    if what == "clickbench":
        make_hits(connection, folder, int(sys.argv[4]))
        print(json.dumps({"tables": {"hits": "hits.parquet"}}))
    else:
        print(json.dumps({"tables": tables_of(connection, folder)}))
    for sql in open(sys.argv[3]).read().split("\n---\n"):
        print(json.dumps({"sql": sql.strip(), "ordered": True, "rows": answer(connection, sql)}))


main()
