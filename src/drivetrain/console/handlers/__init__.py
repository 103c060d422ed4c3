"""What the routes do: a call in, an answer out."""
