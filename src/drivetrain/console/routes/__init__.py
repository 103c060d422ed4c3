"""The routes of the console: one table, from which the server and the OpenAPI document are made."""
