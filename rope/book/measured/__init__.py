"""Measurements of the book: times, errors and traffic, and the records that they are kept in."""
