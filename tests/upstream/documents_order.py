"""Show that PyTorch's head-tail order of several documents isn't the order it documents.

In the documented order of `_PerDocumentHeadTailLoadBalancer`, each process has a head and tail of
every document. The returned order lists a document's parts for all processes next to each other, so
that equal slices of it contain entire documents. Run: python documents_order.py
"""

import torch
from torch.distributed.tensor.experimental._attention import _PerDocumentHeadTailLoadBalancer

if __name__ == "__main__":
    balancer = _PerDocumentHeadTailLoadBalancer([[4, 8, 4]], 2, "cpu")
    print("torch", torch.__version__)
    # In the docstring's drawing, process 0 has tokens 0 3, 0 1 6 7 and 0 3 of the three documents.
    drawn = [0, 3, 4, 5, 10, 11, 12, 15, 1, 2, 6, 7, 8, 9, 13, 14]
    print("expected", drawn)
    print("got     ", balancer._generate_indices()[0].tolist())
    assert balancer._generate_indices()[0].tolist() != drawn, "PyTorch has fixed this"
