"""The book on paper and on a reader: a PDF and an EPUB, both made from the built pages.

`pages` lists what was built, `articles` cleans each page's article into what a still page can
hold, `pdf` prints them all as one document, `epub` packs them with MathML; `publish` puts both
beside the pages. `python -m rope.book.paper --help` says how to call them.
"""
