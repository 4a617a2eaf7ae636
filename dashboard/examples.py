"""Sentences to start from. A link names them by number, so new ones go to the end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A sentence, or a pair, and the two words whose link is worth a look."""

    text: str
    pair: str | None
    query: str
    key: str


EXAMPLES = (
    Example("The animal didn't cross the street because it was too tired.", None, "it", "animal"),
    Example("The bank by the river closed its doors.", None, "bank", "river"),
    Example("She did not say that he was wrong.", None, "say", "not"),
    Example("Kucing duduk di tikar karena lelah.", None, "lelah", "Kucing"),
    Example("A man is playing a guitar.", "A man is playing a flute.", "guitar", "flute"),
    Example("The cat and the dog and the bird slept.", None, "slept", "bird"),
    Example("Anak itu membaca buku di bawah pohon.", "Pohon itu rindang.", "pohon", "Pohon"),
)
