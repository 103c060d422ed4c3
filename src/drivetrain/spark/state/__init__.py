"""The states of an application, as users query them."""
