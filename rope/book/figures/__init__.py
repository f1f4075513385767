"""Draw the book's figures in one style. Each chapter with figures has a module of the same name.

Static figures use Matplotlib (`picture`, `subplots`, `panels`, `shapes`), and animations use Altair
(`chart`). `seeds` draws a line with a band for each trained method. A function that plots
measurements receives the recorded numbers and builds the alt text from them.
"""

from rope.book.figures.picture import Picture, picture
from rope.book.figures.style import panels, subplots

__all__ = ["Picture", "panels", "picture", "subplots"]
