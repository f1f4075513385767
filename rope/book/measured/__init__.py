"""Measure times, errors, and memory traffic for the book, and store the results as records."""
