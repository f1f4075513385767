"""Draw, measure, check, and build the book; the library itself uses none of these modules.

`figures` draws the figures. `measured` and `training` hold the measurements and the programs that
produced them. `judge` checks the reader's answers. `tolerance` defines the rule by which cells
compare numbers, `compressed` implements DeepSeek-V4's attention for a chapter, and `mime` renders
stored figures on a page. `tools` runs and builds the book, `live` runs cells in the browser, and
`paper` makes a PDF; a wheel doesn't contain these three.
"""
