"""States by key: transactional, paged, and exact as of an application time."""
