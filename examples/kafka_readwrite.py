"""Copy a topic, with keys, headers and timestamps looked at: what a message has, and how it is given on.

    drivetrain run examples/kafka_readwrite.py \\
        --set bootstrap=localhost:9092 --set input=lines --set output=copies --set until=latest

Values are bytes and are not looked at; each copy says in its headers where it comes from.
"""

from drivetrain import Application, F, col, sinks, sources

app = Application("kafka_readwrite")
bootstrap = app.setting("bootstrap", "localhost:9092", doc="host:port of a broker, several with commas")
input_topic = app.setting("input", "lines", doc="the topic to copy")
output_topic = app.setting("output", "copies", doc="the topic to copy to")
until = app.setting("until", "", doc="where to end: latest, or a time; empty: never")

messages = app.read(
    sources.kafka(
        bootstrap,
        input_topic,
        format="raw",
        key_format="raw",
        columns=["key", "topic", "partition", "offset", "timestamp"],
        end=until or None,
        group="kafka_readwrite",
    )
)
came_from = F.concat_ws("/", F.col("topic"), F.col("partition"), F.col("offset"))
copies = messages.select(key=col("key"), value=col("value"), came_from=came_from)
copies.sink(
    sinks.kafka(bootstrap, output_topic, key="key", value="value", headers={"came-from": "came_from"})
)
