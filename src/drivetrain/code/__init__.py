"""An application's files: loading the application from them, packing them, verifying them."""
