"""Which heads find how a repeated passage goes on: induction scores on random tokens said twice.

Olsson et al. 2022 (arXiv 2209.11895): in ``A B ... A`` an induction head looks from the second A to the B after the
first. Random tokens leave nothing else to go by, and passages of different lengths no fixed distance. An encoder
sees both sides, so the mirror image is scored as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.capture import input_names
from analysis.findings import interval
from analysis.maps import Floats
from analysis.messages import OptionError
from analysis.models import Model
from analysis.stream import Draws, Encoded, model_batch, shape_of
from analysis.tokens import NO_SEGMENT
from analysis.toy import Toy

DIRECTIONS = ("induction", "induction_back")
PERIODS = (8, 24)  # tokens of a passage, from and to
LEAST = 3  # with a passage of 2 tokens the target is the neighbour, and every previous-token head would score
SEQUENCES = 100
TOGETHER = 16  # sequences that run as one batch; divides `analysis.stream.CHUNK`
REPLICATES = 500
NOT_ORDINARY = ("##", "[unused", "madeupword", "<0x")  # how pieces begin that are no tokens of their own


@dataclass(frozen=True, eq=False)
class Induction:
    """How much each head looks where an induction head would.

    mean, low, high: [direction, layer, head] mean weight, 0 to 1, and the ends of its 95% interval over the sequences
    names: of the directions. "induction": from a token of the second copy to the token after its earlier copy;
        "induction_back": from a token of the first copy to the token before its later copy
    chance: the mean weight that a head would give there which looks at all tokens alike
    sequences, queries: how many were measured in each direction
    """

    names: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    chance: float
    sequences: int
    queries: int

    def table(self, name: str) -> Floats:
        """Return the mean of one direction, [layer, head]."""
        return self.mean[self.names.index(name)]

    def frame(self) -> pd.DataFrame:
        """Return a row a head: layer, head, and for each direction its mean and the ends of its interval."""
        layer, head = np.indices(self.mean.shape[1:])
        columns = {"layer": layer.ravel(), "head": head.ravel()}
        for i, name in enumerate(self.names):
            for suffix, table in (("", self.mean), ("_low", self.low), ("_high", self.high)):
                columns[name + suffix] = table[i].ravel()
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Passage:
    """A random passage of k tokens said twice, in the frame that the tokenizer puts around a text.

    links: [direction, link, 2] the queries of each direction and where an induction head looks from there
    """

    encoded: Encoded
    links: Tensor


def induction(
    source: Model | Toy,
    *,
    length: tuple[int, int] | None = None,
    sequences: int = SEQUENCES,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Induction:
    """Return the induction scores of every head on ``sequences`` random passages, each said twice.

    length: the fewest and the most tokens of a passage; None: 8 to 24, as far as the model reads that many
    on_progress: called after each batch with how many sequences are done; what it raises ends the run

    Raises OptionError for the toy, for lengths that the model cannot read, and for no sequence at all.
    """
    if isinstance(source, Toy):
        raise OptionError(
            "The toy has neither positions nor a vocabulary, so it cannot tell what came after what. Choose a model."
        )
    if sequences < 1:
        raise OptionError("Scores over {given} sequences are none: take 1 at least.", given=sequences)
    draws = Draws(REPLICATES, seed)
    layers, heads = shape_of(source)
    sums = torch.zeros(REPLICATES + 1, layers, len(DIRECTIONS), heads, dtype=torch.float64)
    counts = torch.zeros(REPLICATES + 1, dtype=torch.float64)
    by_chance, done = 0.0, 0
    remaining = passages(source, length, sequences, seed)
    while batch := list(islice(remaining, TOGETHER)):
        times = draws.of([passage.encoded.place for passage in batch])
        links = torch.tensor([passage.links.shape[1] for passage in batch], dtype=torch.float64)
        sums += torch.einsum("rt,tldh->rldh", times, _looked(source, batch))
        counts += times @ links
        by_chance += sum(float(n) / len(p.encoded.segment) for n, p in zip(links, batch, strict=True))
        done += len(batch)
        if on_progress is not None:
            on_progress(done)
    means = (
        (sums / counts[:, None, None, None]).transpose(1, 2).numpy()
    )  # [replicate, direction, layer, head]
    low, high = interval(means[1:])
    queries = int(counts[0])
    return Induction(DIRECTIONS, means[0], low, high, by_chance / queries, sequences, queries)


def _looked(model: Model, batch: list[Passage]) -> Float[Tensor, "text layer direction head"]:
    """Run some passages and return the weights on their links, summed over the links of each direction."""
    found: list[Tensor] = []  # of each layer

    def read(_layer: int, weights: Tensor, _mask: Tensor | None) -> None:
        sums = []
        for i, passage in enumerate(batch):
            query, key = passage.links.unbind(-1)  # [direction, link]
            sums.append(weights[i][:, query, key].sum(-1).T)  # [direction, head]
        found.append(torch.stack(sums).to("cpu", torch.float64))

    model_batch(model, [passage.encoded for passage in batch]).forward(read)
    return torch.stack(found, dim=1)


def passages(model: Model, length: tuple[int, int] | None, sequences: int, seed: int) -> Iterator[Passage]:
    """Yield random passages said twice; the same for the same model, lengths and seed.

    Raises OptionError for lengths that the model cannot read.
    """
    before, after = _frame(model)
    vocabulary = ordinary_tokens(model)
    most = min((model.geometry.max_tokens - len(before) - len(after)) // 2, len(vocabulary))
    least, longest = (min(part, most) for part in PERIODS) if length is None else length
    if not LEAST <= least <= longest <= most:
        raise OptionError(
            "Passages of {least} to {longest} tokens, said twice, cannot be measured with {name}: it takes {fewest} to "
            "{most} tokens. Choose lengths within, or a model that reads longer texts.",
            least=least,
            longest=longest,
            name=model.name,
            fewest=LEAST,
            most=most,
        )
    random = np.random.default_rng(seed)
    names = input_names(model)
    for place in range(sequences):
        k = int(random.integers(least, longest + 1))
        said = random.choice(vocabulary, size=k, replace=False).tolist()
        ids = [*before, *said, *said, *after]
        values = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        inputs = {name: values.get(name, [0] * len(ids)) for name in names}
        segment = [NO_SEGMENT] * len(before) + [0] * 2 * k + [NO_SEGMENT] * len(after)
        yield Passage(Encoded(place, inputs, segment), links(len(before), k))


def links(start: int, k: int) -> Tensor:
    """Return [direction, k - 1, 2] the query and the target of every link of a passage of ``k`` tokens at ``start``.

    The seam is left out: after the first copy of the last token stands the second copy's first one, which is not how
    the passage goes on, and before the second copy of the first token the first copy's last. All targets are k - 1
    places away.
    """
    first, second = torch.arange(start, start + k), torch.arange(start + k, start + 2 * k)
    forward = torch.stack([second[:-1], first[1:]], dim=-1)
    back = torch.stack([first[1:], second[:-1]], dim=-1)
    return torch.stack([forward, back])


def ordinary_tokens(model: Model) -> list[int]:
    """Return the vocabulary numbers of tokens that can stand anywhere, ascending.

    Neither special nor added tokens, nor what only continues a word, nor placeholders such as ``[unused5]``
    (RoBERTa: ``madeupword0001``), nor the bytes of SentencePiece (``<0x0A>``).
    """
    tokenizer = model.tokenizer
    with model.tokenizing:
        left_out = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
        pieces = tokenizer.get_vocab()
    return sorted(
        number
        for piece, number in pieces.items()
        if number not in left_out and not piece.startswith(NOT_ORDINARY)
    )


def _frame(model: Model) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before a text and after it."""
    with model.tokenizing:
        encoding = model.tokenizer("a", verbose=False)
    own = [i for i, side in enumerate(encoding.sequence_ids()) if side is not None]
    ids = encoding["input_ids"]
    return ids[: own[0]], ids[own[-1] + 1 :]
