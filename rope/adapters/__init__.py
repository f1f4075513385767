"""Use this package's rotation in models from other libraries, such as transformers."""
