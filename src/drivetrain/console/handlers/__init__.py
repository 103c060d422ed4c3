"""The functions of the routes: each takes a call and returns an answer."""
