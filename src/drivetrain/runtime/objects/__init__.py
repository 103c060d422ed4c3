"""Object stores: what is asked of them, and the view of one as a file system."""
