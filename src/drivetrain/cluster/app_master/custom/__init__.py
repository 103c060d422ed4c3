"""Application masters that users write."""
