"""The book's figures: one module a chapter, named as the chapter, in one style.

Static ones are Matplotlib's (`picture`, `subplots`, `shapes`), moving ones Altair's (`chart`);
`seeds` draws a line and its band for each method that was trained. Figures of what was measured
take plain numbers as the record holds them, and make their alternative texts from those.
"""

from rope.book.figures.picture import Picture, picture
from rope.book.figures.style import subplots

__all__ = ["Picture", "picture", "subplots"]
