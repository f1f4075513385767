"""position_ids(documents) [B, S] and may_see(documents) [B, S, S]; 0 in documents is padding."""

import itertools

import numpy as np
import torch


def wrong_length_less_1(documents):
    """At a boundary the length of the document before is subtracted, less 1.

    Source: https://github.com/swiss-ai/Megatron-LM/pull/40 (review: `i - prev_index - 1`)
    Part: position_ids
    Cause: each document of a row starts one position later than the document before it
    """
    rows = []
    for row in documents.tolist():
        padding = row.count(0)
        ids = np.arange(-padding, len(row) - padding)
        previous = padding
        for i in range(padding + 1, len(row)):
            if row[i] != row[i - 1]:
                ids[i:] -= i - previous - 1
                previous = i
        rows.append(np.maximum(ids, 0))
    return np.stack(rows)


def wrong_first_row(documents):
    """The positions of row 0 are those of the batch.

    Source: https://github.com/linkedin/Liger-Kernel/pull/477
    Part: position_ids
    Cause: every row of the batch gets the positions of the first row
    """
    alike = documents[0, :, None] == documents[0]
    ids = alike.tril(-1).sum(-1).masked_fill(documents[0] == 0, 0)
    return ids.unsqueeze(0).expand_as(documents)


def wrong_binary_ids(documents):
    """The attention mask, 0 and 1, stands for the numbers of documents.

    Source: https://github.com/axolotl-ai-cloud/axolotl/pull/2844 (flex_block_mask.py, in review)
    Part: may_see
    Cause: a document sees the documents before it
    """
    document_ids = (documents > 0).int()
    causal = torch.tril(torch.ones(documents.shape[1], documents.shape[1], dtype=torch.bool))
    return causal & (document_ids[:, :, None] == document_ids[:, None, :])


def wrong_transposed(documents):
    """The loop allows j >= i.

    Source: https://github.com/marin-community/levanter/pull/102 (docs/Overview.md)
    Part: may_see
    Cause: queries and keys are swapped
    """
    batch, length = documents.shape
    mask = torch.zeros(batch, length, length)
    for b, i, j in itertools.product(range(batch), range(length), range(length)):
        if j >= i and documents[b, i] == documents[b, j] != 0:
            mask[b, i, j] = 1
    return mask.bool()


def wrong_true_is_masked(documents):
    """triu(1) is True where nn.MultiheadAttention must not look, and SDPA must.

    Source: https://github.com/rasbt/LLMs-from-scratch/issues/1061
    Part: may_see
    Cause: the mask is True where a key must not be seen
    """
    length = documents.shape[1]
    future = torch.triu(torch.ones(length, length), diagonal=1).bool()
    return future | (documents[:, :, None] != documents[:, None])


def right_positions_by_groupby(documents):
    """A list of lists, in plain Python; padding counts, too.

    Part: position_ids
    """
    return [
        [i for _, group in itertools.groupby(row) for i, _ in enumerate(group)]
        for row in documents.tolist()
    ]


def right_positions_with_1_for_padding(documents):
    """What generate() of transformers writes for padding.

    Part: position_ids
    """
    alike = documents[:, :, None] == documents[:, None, :]
    return (alike.tril().sum(-1) - 1).masked_fill(documents == 0, 1)


def right_additive_in_half_precision(documents):
    """0 and the most negative number of float16, [B, 1, S, S].

    Part: may_see
    """
    alike = (documents[:, None, :, None] == documents[:, None, None, :]).tril()
    return (1 - alike.half()) * torch.finfo(torch.float16).min


def right_list_of_tensors(documents):
    """Row by row, and not stacked.

    Part: may_see
    """
    return [(row[:, None] == row).tril() & (row > 0) for row in documents]
