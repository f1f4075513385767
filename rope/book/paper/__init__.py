"""Make a PDF and flat notebooks from the built pages.

`pages` lists what was built, `articles` cleans each page's article into what a still page can
hold, `pdf` prints them all as one document, and `publish` puts it next to the pages.
`python -m rope.book.paper --help` says how to call them.
"""
