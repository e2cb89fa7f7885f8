"""Writes about results: trials, reports, measurements, comparisons."""
