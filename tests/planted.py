"""A real BERT network whose eight heads are set by hand, so that what each of them does is known.

The states are slots of ones: the token, its position, the token before it, the token after it. Layer 0 fills the
last two, layer 1 reads them. Every state has the same number of ones at each LayerNorm, so its mean and variance
are constants and its gain and bias undo it; the feed-forward writes nothing. Scores are exact products of slots:
``SHARP`` on what a head looks for makes the softmax take it alone.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from tests import tiny

LAYERS, HEADS = 2, 4
PLANTED = {  # [layer, head] -> what it does
    (0, 0): "previous",
    (0, 1): "next",
    (0, 2): "sink",
    (0, 3): "broad",
    (1, 0): "induction",
    (1, 1): "induction_back",
    (1, 2): "self",
    (1, 3): "mixed",
}
ROLES = ("previous", "next", "sink", "broad", "self")  # those of them that `analysis.roles` has a rule for
TOKENS = len(tiny.PIECES)
POSITIONS = 64
TOKEN = slice(0, TOKENS)
POSITION = slice(TOKENS, TOKENS + POSITIONS)
BEFORE = slice(POSITION.stop, POSITION.stop + TOKENS)
AFTER = slice(BEFORE.stop, BEFORE.stop + TOKENS)
HEAD_DIM = TOKENS + POSITIONS  # so that a head can compare tokens and positions at once
WIDTH = HEADS * HEAD_DIM
ALONE, WITHIN = (
    slice(0, TOKENS),
    slice(TOKENS, HEAD_DIM),
)  # of a head's own dimensions: for tokens, for positions
SHARP = 60.0
SPREAD = 2.5  # of random scores: rows that are neither sharp nor even


def open_planted(folder: Path):
    """Save the planted network with a tokenizer that fits it, and open it as any other model."""
    from analysis.models import open_model

    planted_network().save_pretrained(folder)
    tiny.word_pieces().save_pretrained(folder)
    return open_model(str(folder))


def planted_network() -> BertModel:
    """Return the network."""
    config = BertConfig(
        vocab_size=TOKENS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=1,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2,
        pad_token_id=0,
    )
    network = BertModel(config).eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.zero_()
    embeddings = network.embeddings
    embeddings.word_embeddings.weight[:, TOKEN] = torch.eye(TOKENS)
    embeddings.position_embeddings.weight[:, POSITION] = torch.eye(POSITIONS)
    undo(embeddings.LayerNorm, ones=2)  # token and position
    for layer in network.encoder.layer:
        undo(layer.attention.output.LayerNorm, ones=4)  # and the token before and the one after
        undo(layer.output.LayerNorm, ones=4)
    plant_neighbours(network.encoder.layer[0].attention)
    plant_readers(network.encoder.layer[1].attention)
    for layer in network.encoder.layer:
        layer.attention.self.query.weight.mul_(HEAD_DIM**0.5)  # which the scores are divided by
    return network


def undo(norm: torch.nn.LayerNorm, ones: int) -> None:
    """Let ``norm`` return what it is given, for states of so many ones and otherwise zeros."""
    mean = ones / WIDTH
    norm.bias.fill_(mean)
    norm.weight.fill_((mean - mean**2 + norm.eps) ** 0.5)


def plant_neighbours(attention: torch.nn.Module) -> None:
    """Set layer 0: the token before, the token after, [CLS], everything alike."""
    for head, step, slot in ((0, -1, BEFORE), (1, 1, AFTER)):
        query, key = parts(attention, head)
        looked = (
            shift(step) + torch.eye(POSITIONS) / 2
        )  # at half the score itself: the ends have no neighbour there
        query[WITHIN, POSITION] = SHARP * looked
        key[WITHIN, POSITION] = torch.eye(POSITIONS)
        rows = slice(head * HEAD_DIM, head * HEAD_DIM + TOKENS)
        attention.self.value.weight[rows, TOKEN] = torch.eye(TOKENS)
        attention.output.dense.weight[slot, rows] = torch.eye(TOKENS)
    query, key = parts(attention, 2)
    query[0, POSITION] = SHARP  # every state has one position, so this is the same for all queries
    key[0, tiny.PIECES.index("[CLS]")] = 1


def plant_readers(attention: torch.nn.Module) -> None:
    """Set layer 1: what followed the same token elsewhere, what stood before it, the token itself, random links."""
    for head, slot, step in ((0, BEFORE, 1), (1, AFTER, -1)):
        query, key = parts(attention, head)
        query[ALONE, TOKEN] = torch.eye(TOKENS)
        key[ALONE, slot] = SHARP * torch.eye(TOKENS)  # a key whose neighbour is the query's token
        key[ALONE, TOKEN] = random_scores(head)  # where there is none: no pattern that has a name
        query[WITHIN, POSITION] = (
            -2 * SHARP * shift(step)
        )  # the query's own neighbour has such a neighbour too
        key[WITHIN, POSITION] = torch.eye(POSITIONS)
    query, key = parts(attention, 2)
    query[WITHIN, POSITION] = SHARP * torch.eye(POSITIONS)
    key[WITHIN, POSITION] = torch.eye(POSITIONS)
    query, key = parts(attention, 3)
    query[ALONE, TOKEN] = torch.eye(TOKENS)
    key[ALONE, TOKEN] = random_scores(3)


def parts(attention: torch.nn.Module, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of W_Q and of W_K that belong to one head, [head_dim, model] each."""
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    return attention.self.query.weight[rows], attention.self.key.weight[rows]


def shift(step: int) -> torch.Tensor:
    """Return [position of the key, position of the query]: 1 where the key is ``step`` after the query."""
    return torch.diag(torch.ones(POSITIONS - abs(step)), diagonal=-step)


def random_scores(seed: int) -> torch.Tensor:
    """Return [query's token, key's token]."""
    return SPREAD * torch.randn(TOKENS, TOKENS, generator=torch.Generator().manual_seed(seed))
