"""Build, run, and check the book. The rest of the package doesn't need these modules."""
