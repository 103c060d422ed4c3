"""The Spark session, its Java process and its Python workers."""
