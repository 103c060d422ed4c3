"""What happens in one batch of a fragment."""
