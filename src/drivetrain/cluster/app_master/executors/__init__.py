"""The executors of an application, as its application master sees them."""
