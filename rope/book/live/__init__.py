"""Proofs that run in the page: Python in the browser, from file:// and without a network.

`python -m rope.book.live` (`make live`) makes the bundle once, and gives the built pages their
buttons. `slicing` and `running` are in the bundle too: they need Python alone.
"""
