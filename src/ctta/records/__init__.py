"""The run folder and the sweep folder: what a run leaves behind, as plain data."""
