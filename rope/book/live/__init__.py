"""Run cells of the built pages in the browser, from file:// and without a network."""
