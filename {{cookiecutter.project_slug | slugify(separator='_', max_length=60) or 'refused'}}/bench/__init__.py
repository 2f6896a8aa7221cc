"""Benchmarks: ratios measured in one run, so that the machine they run on matters little."""
