"""Draw the book's figures: one module per chapter, named after the chapter, in one style.

Static figures use Matplotlib (`picture`, `subplots`, `panels`, `shapes`); animations use Altair
(`chart`). `seeds` draws a line with a band for each trained method. Functions that plot
measurements take the recorded numbers and build the alt texts from these numbers.
"""

from rope.book.figures.picture import Picture, picture
from rope.book.figures.style import panels, subplots

__all__ = ["Picture", "panels", "picture", "subplots"]
