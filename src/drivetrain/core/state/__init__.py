"""States by key: transactional, paged, as of an application time."""
