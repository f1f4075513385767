"""This package inside other libraries: `rope.adapters.transformers`."""
