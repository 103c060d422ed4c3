"""Count words, from Kafka to Kafka: source → split → sum → sink.

    scripts/kafka.sh start && scripts/kafka.sh topic lines && scripts/kafka.sh topic counts
    drivetrain run examples/kafka_wordcount.py \\
        --set bootstrap=localhost:9092 --set input=lines --set output=counts

After every batch, the new count of each word that came up; the key is the word, so that a compacted topic
keeps the newest. It goes on until it is stopped (Ctrl-C), or until what `until` names: `latest`, or a time.
"""

from drivetrain import Application, F, agg, col, sinks, sources, windows

app = Application("kafka_wordcount")
bootstrap = app.setting("bootstrap", "localhost:9092", doc="host:port of a broker, several with commas")
input_topic = app.setting("input", "lines", doc="a topic of lines")
output_topic = app.setting("output", "counts", doc="a topic for the counts")
until = app.setting("until", "", doc="where to end: latest, or a time; empty: never")

lines = app.read(sources.kafka(bootstrap, input_topic, end=until or None, group="kafka_wordcount"))
words = lines.select(word=F.explode(F.split(F.col("value"), r"\s+"))).filter(col("word") != "")
running = words.group_by("word").window(windows.everything(emission="accumulating"))
running.aggregate(count=agg.count()).sink(sinks.kafka(bootstrap, output_topic, key="word"))
