"""The plain PySpark script that `startup` compares with: what one writes first, with a few settings or none.

python benchmarks/startup_script.py INPUT OUTPUT CHECKPOINT [name=value of a Spark setting …]
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

lines, out, checkpoint, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[*]").appName("wordcount")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
words = (
    spark.readStream.text(lines).select(F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''")
)
query = (
    words.groupBy("word")
    .count()
    .writeStream.outputMode("complete")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .foreachBatch(lambda batch, _id: batch.write.mode("overwrite").parquet(out))
    .start()
)
query.awaitTermination()
