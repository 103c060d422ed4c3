"""MQTT: messages from a broker."""
