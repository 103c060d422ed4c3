"""From a graph to fragments."""
