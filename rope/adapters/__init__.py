"""Use this package in other libraries; `rope.adapters.transformers` is for transformers."""
