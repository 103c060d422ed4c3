"""Count words: text files → split → count by word → files.

    drivetrain run examples/wordcount.py --set input=/some/text --set output=out/

One row per word, with its final count. Run it again and nothing happens; kill it and run it again, and
the output is what an undisturbed run would have written.
"""

from drivetrain import Application, F, agg, col, sinks, sources

app = Application("wordcount")
input_path = app.setting("input", doc="a text file, or a directory of text files")
output_path = app.setting("output", doc="a directory for the counts")
output_format = app.setting("format", "parquet", doc="parquet, csv or json")

lines = app.read(sources.text(input_path))
words = lines.select(word=F.explode(F.split(F.col("value"), r"\s+"))).filter(col("word") != "")
counts = words.group_by("word").aggregate(count=agg.count())
counts.sink(sinks.files(output_path, format=output_format))
