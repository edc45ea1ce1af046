"""Speed, as ratios measured in one run: `python -m benchmarks`, or `python -m benchmarks views` for one of them."""
