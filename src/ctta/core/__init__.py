"""What adapts: the adapter, its networks, statistics, views and losses."""
