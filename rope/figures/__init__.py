"""The book's figures: one module a chapter, named as the chapter, in one style.

Static ones are Matplotlib's (`picture`, `subplots`, `shapes`), moving ones Altair's (`chart`);
`seeds` draws a line and its band for each method that was trained.
"""

from rope.figures.picture import Picture, picture
from rope.figures.style import subplots

__all__ = ["Picture", "picture", "subplots"]
