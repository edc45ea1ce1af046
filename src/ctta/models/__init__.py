"""One file a family."""
