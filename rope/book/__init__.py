"""The book's wing: all that is not the library, which imports none of it.

`figures` draws, `measured` and `training` hold the measurements and the programs that made them,
`tolerance` is the rule by which cells compare, `mime` shows stored figures. `tools` runs and builds
the book, `live` and `paper` are its other forms; a wheel leaves those three out.
"""
