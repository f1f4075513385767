"""Build, run and check the book; the package itself needs none of this."""
