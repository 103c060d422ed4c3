"""Channels between fragments: the durable log, its writer and reader, and the clock they carry."""
