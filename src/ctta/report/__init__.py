"""What is made from the records of a run: tables, a self-contained HTML page, and the feed of trackers."""
