"""Run cells in the built page: Python in the browser, from file:// and without a network."""
