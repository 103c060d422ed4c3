"""The connector of SQL databases."""

from __future__ import annotations

from drivetrain.api.connectors.mysql_sink import MysqlSink
from drivetrain.api.connectors.sql_sink import PostgresqlSink, SqliteSink
from drivetrain.connectors.sql.sql_sink import open_sql
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class SqlConnector(Connector):
    """Tables of SQLite, PostgreSQL, MySQL and MariaDB, written."""

    sinks = (SqliteSink, PostgresqlSink, MysqlSink)

    def open_sink(self, sink: SqliteSink | PostgresqlSink | MysqlSink, context: SinkContext) -> SinkWriter:
        """The writer to a table."""
        return open_sql(sink, context)
