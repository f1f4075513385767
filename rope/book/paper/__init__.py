"""Build a PDF and flat notebooks from the built pages: `python -m rope.book.paper --help`."""
