"""Benchmarks: ratios against plain decoding, interleaved in one run, medians."""
