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

# Two sentences that differ in one word, which the Compare page lays over each other.
MINIMAL_PAIRS = (
    ("She did say that he was wrong.", "She did not say that he was wrong."),
    ("The key to the cabinets is here.", "The keys to the cabinets are here."),
    (
        "The animal didn't cross the street because it was too tired.",
        "The animal didn't cross the street because it was too wide.",
    ),
    ("He sat by the bank of the river.", "He sat by the bank of the city."),
    ("Dia makan nasi karena lapar.", "Dia tidak makan nasi karena kenyang."),
)
