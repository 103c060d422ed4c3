"""Columns of those types that Java and Python both write, as SQL over `id`; several have nulls."""

COLUMNS = (
    "if(id % 7 = 0, null, repeat(cast(id AS string), 30)) AS text",
    "cast('x' AS binary) AS b",
    "if(id % 3 = 0, null, cast(id AS int)) AS i",
    "cast(id AS smallint) AS h",
    "cast(id % 100 AS tinyint) AS t",
    "id / 7 AS d",
    "cast(id / 7 AS float) AS f",
    "id % 2 = 0 AS o",
    "timestamp_ntz'2020-01-01 00:00:00' AS n",
    "array(cast(id AS string), null) AS a",
    "map('k', id) AS m",
    "named_struct('a', id, 'b', array(named_struct('c', 'z'))) AS st",
    "cast(null AS string) AS nothing",
)
