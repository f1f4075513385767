"""Use this package inside other libraries: `rope.adapters.transformers`."""
