"""Object stores: the operations that they must have, and the view of a store as a file system."""
