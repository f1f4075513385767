"""position_ids(documents) [B, S] and may_see(documents) [B, S, S]; 0 in documents is padding."""

import itertools

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_mask


def wrong_from_1_where_not_padded(documents):
    """Index + 1 for words, 0 for padding.

    Source: https://github.com/huggingface/transformers/issues/238 (proposed there)
    Part: position_ids
    Cause: all rows count on: padding and documents are not read; positions start at 1
    """
    return np.array(
        [[i + 1 if word != 0 else 0 for i, word in enumerate(row)] for row in documents.tolist()]
    )


def wrong_offset_by_padding(documents):
    """Each row is moved by the number of its padding tokens: they have -2, -1.

    Source: https://github.com/turboderp-org/exllamav2/issues/606 (offsets, explained in a comment)
    Part: position_ids
    Cause: positions run on over the documents of a row; each must start at 0; padding has a neg
    """
    return torch.arange(documents.shape[1]) - (documents == 0).sum(1, keepdim=True)


def wrong_length_less_1(documents):
    """At a boundary the length of the document before is subtracted, less 1.

    Source: https://github.com/swiss-ai/Megatron-LM/pull/40 (review: `i - prev_index - 1`)
    Part: position_ids
    Cause: each document of a row starts one later than the one before
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
    Cause: all rows get the positions of the first
    """
    alike = documents[0, :, None] == documents[0]
    ids = alike.tril(-1).sum(-1).masked_fill(documents[0] == 0, 0)
    return ids.unsqueeze(0).expand_as(documents)


def wrong_positions_of_1(documents):
    """Each document counts from 1.

    Source: https://github.com/Physical-Intelligence/openpi/issues/762 (PaliGemma counts from 1)
    Part: position_ids
    Cause: positions start at 1
    """
    alike = documents[:, :, None] == documents[:, None, :]
    return alike.tril().sum(-1) * documents.ne(0)


def wrong_block_diagonal(documents):
    """On its way to another device a block-diagonal causal mask lost its causal half.

    Source: https://github.com/facebookresearch/xformers/issues/1185 (0.0.28.post3)
    Part: may_see
    Cause: later tokens are seen
    """
    return documents.unsqueeze(2) == documents.unsqueeze(1)


def wrong_binary_ids(documents):
    """The attention mask, 0 and 1, stands for the numbers of documents.

    Source: https://github.com/axolotl-ai-cloud/axolotl/pull/2844 (flex_block_mask.py, in review)
    Part: may_see
    Cause: a document sees the ones before it
    """
    document_ids = (documents > 0).int()
    causal = torch.tril(torch.ones(documents.shape[1], documents.shape[1], dtype=torch.bool))
    return causal & (document_ids[:, :, None] == document_ids[:, None, :])


def wrong_causal_alone(documents):
    """Positions are reset, and the mask stays causal for the whole row.

    Source: https://github.com/DeepOpt-com/WrinkleFree-Monorepo/issues/53
    Part: may_see
    Cause: a document sees the ones before it, and padding
    """
    batch, length = documents.shape
    return torch.ones(length, length, dtype=torch.bool).tril().repeat(batch, 1, 1)


def wrong_transposed(documents):
    """The loop allows j >= i.

    Source: https://github.com/marin-community/levanter/pull/102 (docs/Overview.md)
    Part: may_see
    Cause: queries and keys have changed places
    """
    batch, length = documents.shape
    mask = torch.zeros(batch, length, length)
    for b, i, j in itertools.product(range(batch), range(length), range(length)):
        if j >= i and documents[b, i] == documents[b, j] != 0:
            mask[b, i, j] = 1
    return mask.bool()


def wrong_not_inverted(documents):
    """Above the diagonal stands 1, and `== 0` is forgotten.

    Source: https://github.com/hkproj/pytorch-transformer/issues/19 (translate.py)
    Part: may_see
    Cause: tokens see later ones alone, not even themselves
    """
    batch, length = documents.shape
    decoder_mask = torch.triu(torch.ones((batch, length, length)), diagonal=1).type(torch.int)
    return decoder_mask * (documents[:, :, None] == documents[:, None, :])


def wrong_true_is_masked(documents):
    """triu(1) is True where nn.MultiheadAttention must not look, and SDPA must.

    Source: https://github.com/rasbt/LLMs-from-scratch/issues/1061
    Part: may_see
    Cause: True stands where a key must not be seen
    """
    length = documents.shape[1]
    future = torch.triu(torch.ones(length, length), diagonal=1).bool()
    return future | (documents[:, :, None] != documents[:, None])


def wrong_padding_alone(documents):
    """A padding mask is given, and switches the causal one off.

    Source: https://github.com/huggingface/transformers/pull/41966 (GPT-2)
    Part: may_see
    Cause: only padding is masked
    """
    batch, length = documents.shape
    return (documents != 0)[:, None, None, :].expand(batch, 1, length, length)


def wrong_nothing(documents):
    """Tokens see all positions of the row.

    Source: https://github.com/0-5788719150923125/praxis/issues/38
    Part: may_see
    Cause: nothing is masked
    """
    return torch.zeros(*documents.shape, documents.shape[1])


def wrong_strict(documents):
    """The triangle begins below the diagonal.

    Source: https://github.com/pbloem/former/issues/10 (the post's `triu_indices(t, t, offset=0)`)
    Part: may_see
    Cause: a token does not see itself
    """
    length = documents.shape[1]
    bias = torch.zeros(len(documents), length, length)
    row, column = torch.triu_indices(length, length, offset=0)
    bias[:, row, column] = float("-inf")
    return bias.masked_fill(documents[:, :, None] != documents[:, None, :], float("-inf"))


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


def right_flex_attention(documents):
    """create_mask of FlexAttention.

    Part: may_see
    """

    def document_causal(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (documents[b, q_idx] == documents[b, kv_idx])

    return create_mask(document_causal, len(documents), 1, *2 * [documents.shape[1]], device="cpu")
