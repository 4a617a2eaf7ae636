"""Speed and size, as ratios within one run. `make bench`; nothing here is a test."""
