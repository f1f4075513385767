"""The book's figures: static ones in Matplotlib, moving ones in Altair, in one style.

`picture` and `subplots` make static figures; `rope.figures.chart` has the parts of the moving
ones. Each other module draws the figures of one idea. Matplotlib and Altair are imported where
they are used.
"""

from rope.figures.picture import Picture, picture
from rope.figures.style import subplots

__all__ = ["Picture", "picture", "subplots"]
