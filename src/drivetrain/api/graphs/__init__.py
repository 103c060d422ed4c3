"""The graph that an application builds: processors, their types, and edits of it."""
