"""The book's own tools: running its notebooks, their rules, its address, its pages."""
