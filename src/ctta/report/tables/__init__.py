"""Tables: what the numbers of a run mean."""
