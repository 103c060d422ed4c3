"""Readings of meters, from an MQTT broker to files.

    mosquitto &
    drivetrain run examples/mqtt_meters.py --set broker=mqtt://localhost:1883 --set output=readings
    mosquitto_pub -q 1 -t meters/kitchen/power -m 230

Each message becomes an object with the meter, from its topic, and the watts, from its payload. It goes on
until it is stopped (Ctrl-C). Messages that come while it does not run are kept by the broker.
"""

from drivetrain import Application, sinks, sources

app = Application("mqtt_meters")
broker = app.setting("broker", "mqtt://localhost:1883", doc="the broker's address")
output = app.setting("output", "readings", doc="a directory for the readings")
in_flight = app.setting("in_flight", 100, doc="how many messages the broker sends without an acknowledgement")

messages = app.read(sources.mqtt(broker, "meters/+/power", receive_maximum=in_flight), name="messages")
readings = messages.select(meter="split(topic, '/')[1]", watts="cast(payload as double)", at="received")
readings.filter("watts is not null").sink(sinks.json(output))
