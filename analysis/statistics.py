"""What a head does, in numbers and in one sentence.

Entropy of an attention row: H = -sum p log2 p in bits, with 0 log 0 = 0 (Shannon 1948; for attention
heads Clark et al. 2019, arXiv 1906.04341, section 3). It is 0 where one key gets all and log2 n where n
keys that may be attended get the same. nats = bits x 0.6931.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from scipy.special import entr

from analysis.maps import AttentionMaps, Floats, Head, Specials, strongest, with_specials, without_queries
from analysis.messages import Message, message
from analysis.tokens import Bools, Ints, Tokens, clip

BROAD = 0.9  # of the largest entropy: from here on a head is said to look everywhere
CLEAR = 0.5  # share of the words that must agree for a head to be said to do one thing


def entropy(weights: Floats) -> Floats:
    """Return the entropy in bits of each row of ``weights`` [..., query, key] -> [..., query].

    Between 0 and log2 of the number of keys; computed in float32 at least.
    """
    weights = np.asarray(weights, dtype=np.promote_types(np.asarray(weights).dtype, np.float32))
    return np.maximum(entr(weights).sum(axis=-1) / math.log(2), 0.0)


def entropy_normalised(weights: Floats, key_counts: np.ndarray | int) -> Floats:
    """Return the entropy of each row as a share, 0 to 1, of its maximum log2 n.

    ``key_counts`` [..., query] is n, the keys that may be attended (`AttentionMaps.key_counts`, with an
    axis for the heads); a row with one key only has entropy 0.
    """
    most = np.log2(np.maximum(key_counts, 1))
    bits = entropy(weights)
    return np.minimum(np.divide(bits, most, out=np.zeros_like(bits), where=most > 0), 1.0)


def row_entropy(maps: AttentionMaps, specials: Specials = "keep") -> tuple[Floats, Floats]:
    """Return the entropy of every row, in bits and normalised, each [layer, head, query].

    With ``"hide"`` the special tokens are no queries, but a row's entropy still counts what it gives to
    them: the row is a distribution only with them. With ``"renormalise"`` they are neither.
    """
    if specials == "hide":
        maps = without_queries(maps, maps.queries.special)
    else:
        maps = with_specials(maps, specials)
    counts = maps.key_counts()[:, None]  # [layer, 1, query]
    shape = (maps.layers, maps.heads, len(maps.queries))
    bits, normalised = np.empty(shape), np.empty(shape)
    for layer, rows in enumerate(maps.weights):  # a layer at a time: a long text has large maps
        bits[layer] = entropy(rows)
        normalised[layer] = entropy_normalised(rows, counts[layer])
    return bits, normalised


def head_entropy(maps: AttentionMaps, specials: Specials = "keep") -> tuple[Floats, Floats]:
    """Return the mean over the queries of `row_entropy`, in bits and normalised, each [layer, head].

    NaN where no query is left.
    """
    bits, normalised = row_entropy(maps, specials)
    if not bits.shape[-1]:
        empty = np.full(bits.shape[:2], np.nan)
        return empty, empty
    return bits.mean(axis=-1), normalised.mean(axis=-1)


def link(maps: AttentionMaps, query: int, key: int, *, specials: Specials = "keep") -> Floats:
    """Return [layer, head] the weight that each head gives from one query to one key.

    With ``"renormalise"`` it is the share of what the query gives to keys that are not special.
    """
    weights = maps.weights[:, :, query, key]
    if specials != "renormalise":
        return weights
    left = maps.weights[:, :, query, ~maps.keys.special].sum(axis=-1)
    return np.divide(weights, left, out=np.zeros_like(weights), where=left != 0)


def describe(maps: AttentionMaps, head: Head) -> Message:
    """Say in one computed sentence what ``head`` does with this text, by where its largest weights lie.

    Every word (no special token, not mere punctuation) votes for the key it looks at most. At least half
    of the votes for the previous, the next or the same word, or for one single key, name what the head does;
    a mean normalised entropy of 0.9 or more says that it looks everywhere.
    """
    one = maps.at(head)
    if one.gone.any():
        return message("was removed from this model")
    weights = one.weights[0, 0]
    queries = np.flatnonzero(_are_words(maps.queries) & (weights.sum(axis=-1) > 0))
    if not len(queries) or not len(maps.keys):
        return message("has no words to look from here")
    bits, normalised = (float(table[0, 0]) for table in head_entropy(one))
    if normalised >= BROAD:
        return message(
            "looks nearly everywhere: entropy {bits:.2f} bits, {share:.0%} of the most possible",
            bits=bits,
            share=normalised,
        )
    target = weights.argmax(axis=-1)
    return (
        _by_offset(maps, queries, target)
        or _by_key(maps, weights, queries, target)
        or _by_link(maps, weights)
    )


def _are_words(tokens: Tokens) -> Bools:
    """Return which tokens hold a letter or a digit and are not special; all but the special where none do."""
    lettered = np.array([any(map(str.isalnum, label)) for label in tokens.labels], dtype=bool)
    words = lettered & ~tokens.special
    return words if words.any() else ~tokens.special


def _has_word(tokens: Tokens, places: Ints) -> Bools:
    """Return whether there is a token at each of ``places`` that is not special: beside [CLS] is no word."""
    inside = (places >= 0) & (places < len(tokens))
    return inside & ~tokens.special[places.clip(0, len(tokens) - 1)]


def _by_offset(maps: AttentionMaps, queries: np.ndarray, target: np.ndarray) -> Message | None:
    """Say that the head looks at the word before, after, or the query itself, if most queries do."""
    same = maps.queries.labels == maps.keys.labels and (maps.queries.segment == maps.keys.segment).all()
    if not same:  # from one sentence to another
        return None
    beside = {step: queries[_has_word(maps.keys, queries + step)] for step in (-1, 0, 1)}
    votes = {step: int((target[words] == words + step).sum()) for step, words in beside.items()}
    step = max(votes, key=lambda k: votes[k])
    if votes[step] < max(CLEAR * len(queries), 1):
        return None
    values = {"count": votes[step], "all": len(beside[step])}
    if step == -1:
        return message("looks at the previous word for {count} of {all} words", **values)
    if step == 1:
        return message("looks at the next word for {count} of {all} words", **values)
    return message("looks at the word itself for {count} of {all} words", **values)


def _by_key(maps: AttentionMaps, weights: Floats, queries: np.ndarray, target: np.ndarray) -> Message | None:
    """Say which one key most queries look at, if there is one."""
    (key, count), *_ = Counter(target[queries].tolist()).most_common(1)
    if count < CLEAR * len(queries) or len(queries) < 2:
        return None
    values = {"key": clip(maps.keys.labels[key]), "count": count, "all": len(queries)}
    if not maps.keys.special[key]:
        return message("looks at “{key}” for {count} of {all} words", **values)
    link = _word_link(maps, weights)
    if link is None:
        return message("rests on {key} for {count} of {all} words", **values)
    return message(
        "rests on {key} for {count} of {all} words; its strongest link between words is "
        "“{from_word}” to “{to_word}”, {weight:.2f}",
        **values,
        **link,
    )


def _by_link(maps: AttentionMaps, weights: Floats) -> Message:
    """Say that the head does no one thing, and its strongest link."""
    link = _word_link(maps, weights)
    if link is None:
        return message("does no one thing")
    return message(
        "does no one thing; its strongest link between words is “{from_word}” to “{to_word}”, {weight:.2f}",
        **link,
    )


def _word_link(maps: AttentionMaps, weights: Floats) -> dict[str, object] | None:
    """Return the strongest link of one map [query, key] outside the special tokens."""
    words = np.where(maps.keys.special[None, :] | maps.queries.special[:, None], -1.0, weights)
    query, key = strongest(words)
    if words[query, key] < 0:
        return None
    labels = {"from_word": clip(maps.queries.labels[query]), "to_word": clip(maps.keys.labels[key])}
    return {**labels, "weight": float(weights[query, key])}
