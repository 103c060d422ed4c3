"""What a stream can do: the operators that `Stream` and its groups offer."""
