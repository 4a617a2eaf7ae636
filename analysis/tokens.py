"""The tokens of a text: what each covers, which are special, which word each belongs to."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Span = tuple[int, int]

NO_SEGMENT = -1  # of tokens that belong to neither sentence: [CLS], the separators
# The blocks of ideographs, which are written without blanks between words (as in BERT's own tokenizer).
JOINERS = "\u200d\ufe0f"  # what binds emoji together
IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text or a pair, in the order the model reads them; n of them.

    ids: [n] vocabulary numbers (-1 where a unit stands for several pieces, or has none)
    labels: n strings to show: the original span of the text, ``##`` before one that continues a word
    spans: [n, 2] start and end of each token in its own sentence, in characters; (0, 0) where it has none
    special: [n] whether the token is special to the model, also where the text itself spelled it out
    segment: [n] 0 for sentence A, 1 for B, -1 for what the tokenizer put around them
    word: [n] number of the word each token belongs to, ascending from 0; a special token is its own word
    texts: the sentences that the spans point into, one or two
    """

    ids: Ints
    labels: tuple[str, ...]
    spans: Ints
    special: Bools
    segment: Ints
    word: Ints
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, keep: Ints) -> Tokens:
        """Return the tokens at the positions ``keep``; words are numbered anew."""
        return replace(
            self,
            ids=self.ids[keep],
            labels=tuple(self.labels[i] for i in keep),
            spans=self.spans[keep],
            special=self.special[keep],
            segment=self.segment[keep],
            word=np.unique(self.word[keep], return_inverse=True)[1].astype(np.int64),
        )

    def as_words(self) -> Tokens:
        """Return one unit a word: its label is the span of the text that its pieces cover."""
        first = self.word_starts()
        last = np.append(first[1:], len(self))[: len(first)] - 1
        spans = [
            _trim(self.texts[self.segment[a]], (int(self.spans[a, 0]), int(self.spans[b, 1])))
            for a, b in zip(first, last, strict=True)
        ]  # some pieces cover a blank only
        labels = tuple(
            (self.texts[self.segment[a]][slice(*span)] if b > a else "") or self.labels[a]
            for a, b, span in zip(first, last, spans, strict=True)
        )
        return replace(
            self,
            ids=np.where(first == last, self.ids[first], -1),
            labels=labels,
            spans=np.array(spans, dtype=np.int64).reshape(-1, 2),
            special=self.special[first],
            segment=self.segment[first],
            word=np.arange(len(first)),
        )

    def word_starts(self) -> Ints:
        """Return [words] the position of the first token of each word."""
        return np.unique(self.word, return_index=True)[1]


def read_tokens(
    ids: Sequence[int],
    pieces: Sequence[str],
    spans: Sequence[Span],
    special: Sequence[bool],
    segment: Sequence[int],
    texts: Sequence[str],
) -> Tokens:
    """Put together the `Tokens` of a text from what a tokenizer says of them.

    ``pieces`` are the tokenizer's own names, shown for tokens that cover no text. Blanks at the edges of
    a span are trimmed: some tokenizers count the blank before a word as its part.
    """
    outside = [s < 0 for s in segment]
    trimmed = [
        (0, 0) if out else _trim(texts[side], span)
        for out, side, span in zip(outside, segment, spans, strict=True)
    ]
    trimmed = _with_marks(trimmed, segment, texts)
    alone = [a or b for a, b in zip(outside, special, strict=True)]
    labels = []
    for i, (start, end) in enumerate(trimmed):
        if outside[i] or start >= end:
            labels.append(pieces[i])
            continue
        continues = (
            i > 0 and not alone[i] and not alone[i - 1] and segment[i] == segment[i - 1]
            and _continues(texts[segment[i]], trimmed[i - 1], start)
        )  # fmt: skip
        labels.append(("##" if continues else "") + texts[segment[i]][start:end])
    return Tokens(
        ids=np.asarray(ids, dtype=np.int64),
        labels=tuple(labels),
        spans=np.asarray(trimmed, dtype=np.int64).reshape(-1, 2),
        special=np.asarray(alone, dtype=bool),
        segment=np.asarray(segment, dtype=np.int64),
        word=_number_words(trimmed, alone, segment, texts),
        texts=tuple(texts),
    )


def clip(label: str, most: int = 40) -> str:
    """Return a label short enough for a sentence or a button, its end cut off with an ellipsis."""
    return label if len(label) <= most else label[: most - 1] + "…"


def words_of(text: str) -> list[Span]:
    """Return the spans of the words of ``text``: runs between blanks, outer punctuation apart.

    ``didn't`` stays whole; ``(tired).`` is ``(``, ``tired``, ``)`` and ``.``. Ideographs, written without
    blanks, stand alone.
    """
    return [word for run in _runs(text) for word in _peel(text, *run)]


def _runs(text: str) -> Iterator[Span]:
    start = 0
    for i, char in enumerate(text):
        if char.isspace() or _is_ideograph(char):
            if i > start:
                yield start, i
            if not char.isspace():
                yield i, i + 1
            start = i + 1
    if start < len(text):
        yield start, len(text)


def _peel(text: str, start: int, end: int) -> list[Span]:
    """Split the outer punctuation of the run [start, end) off, a character each."""
    first, last = start, end
    while first < last and is_punctuation(text[first]):
        first += 1
    while last > first and is_punctuation(text[last - 1]):
        last -= 1
    core = [(first, last)] if last > first else []
    return [(i, i + 1) for i in range(start, first)] + core + [(i, i + 1) for i in range(last, end)]


def is_punctuation(char: str) -> bool:
    """Whether a character is punctuation, or one of the signs of ASCII ($, +, <)."""
    category = unicodedata.category(char)
    return category.startswith("P") or (char.isascii() and category.startswith("S"))


def _is_ideograph(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in IDEOGRAPHS)


def _trim(text: str, span: Span) -> Span:
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _with_marks(spans: list[Span], segment: Sequence[int], texts: Sequence[str]) -> list[Span]:
    """Return the spans with the accents and joiners that follow them, which tokenizers often drop."""
    grown = list(spans)
    for i, (start, end) in enumerate(spans):
        side = segment[i]
        if side < 0 or start >= end:
            continue
        following = spans[i + 1][0] if i + 1 < len(spans) and segment[i + 1] == side else len(texts[side])
        while end < following and (
            unicodedata.category(texts[side][end])[0] == "M" or texts[side][end] in JOINERS
        ):
            end += 1
        grown[i] = (start, end)
    return grown


def _continues(text: str, before: Span, start: int) -> bool:
    """Whether a piece goes on with the word of the piece ``before``: no blank, no punctuation between."""
    if start < before[1] or start == before[0]:
        return True  # pieces of one character, as byte-level tokenizers make them
    return start == before[1] > before[0] and text[start].isalnum() and text[start - 1].isalnum() and not (
        _is_ideograph(text[start]) or _is_ideograph(text[start - 1])
    )  # fmt: skip


def _number_words(
    spans: Sequence[Span], alone: Sequence[bool], segment: Sequence[int], texts: Sequence[str]
) -> Ints:
    """Return [n] the word of each token; a piece that covers nothing joins the word that follows it."""
    ends = [[end for _, end in words_of(text)] for text in texts]
    names: list[Span] = []
    for i, ((start, _), side) in enumerate(zip(spans, segment, strict=True)):
        if alone[i] or not ends[side]:
            names.append((-1, i))
        else:
            names.append((side, min(bisect_right(ends[side], start), len(ends[side]) - 1)))
    changes = [i > 0 and names[i] != names[i - 1] for i in range(len(names))]
    return np.cumsum(changes, dtype=np.int64)
