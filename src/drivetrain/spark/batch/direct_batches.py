"""Batches of files as plans over the files, of which Spark then reads only what the branches use.

Problem: branches are compiled after the trunk, for each batch, and another version may need other columns. So
Spark, which does not know them when the query starts, reads all columns of the files.

Design: when a batch of a trunk without state arrives, a class of ours in Java (`session.local_files`) looks
up the query's own plan of this batch, and makes a DataFrame of that. The rows are the same, and the optimizer
sees all the way from the files to an output. Where the class is not there, or the plan is more than files,
projections and filters, the batch is what Spark has passed.

Invariants:

1. The files of a batch are those that Spark has planned, whoever reads them.

Called by `spark_engine`.
"""

from __future__ import annotations

from typing import Final

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.java_classes import java_class

_CLASS: Final = "drivetrain.DirectBatch"


def direct_batch(trunk: Trunk, df: DataFrame, spark: SparkSession) -> DataFrame:
    """The batch `df` of a trunk, read from its files if that can save columns. Call it in Spark's thread.

    `spark` is the session in which the query was started; the query has a copy.
    """
    if not trunk.may_be_direct:
        return df
    direct = java_class(spark._jvm, _CLASS)
    if not isinstance(direct, JavaClass):
        return df
    own = df.sparkSession
    found = direct.of(own._jsparkSession, spark._jsparkSession)
    return df if found is None else ClassicDataFrame(found, own)
