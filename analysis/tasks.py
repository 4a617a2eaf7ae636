"""What a model is scored on: similarity of pairs, classification, masked words, fidelity to the whole model.

Similarity: cosine of mean-pooled embeddings against graded pairs, as the bundled model was published (Reimers
and Gurevych 2019, arXiv 1908.10084). Masked words: pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional

from analysis.ablation import Inputs, Reader, plain
from analysis.capture import encode
from analysis.datasets import Data
from analysis.maps import Floats
from analysis.messages import OptionError, message
from analysis.models import Model
from analysis.problems import Predictions, Problem, Rows, Task, base_of, embed, encoded
from analysis.scores import ACCURACY, MACRO_F1, MATTHEWS, MEAN, PEARSON, SPEARMAN, check_gold
from analysis.suffix import head_of
from analysis.texts import whole_number

WORDS = 5  # words of a text that are masked, one at a time


def set_up(task: Task, model: Model, data: Data, *, estimate: Data | None = None, seed: int = 0) -> Problem:
    """Set a task up on a model and the data that is reported on.

    estimate: other data, on which a classifier is fitted where the checkpoint has none (classification), and
        nothing else
    seed: of which words are masked

    Raises OptionError for what the model or the data cannot do.
    """
    builders: dict[str, Callable[[], Problem]] = {
        "similarity": lambda: _similarity(model, data),
        "classification": lambda: _classification(model, data, estimate),
        "masked": lambda: _masked(model, data, seed),
        "fidelity": lambda: _fidelity(model, data),
    }
    return builders[task]()


def _similarity(model: Model, data: Data) -> Problem:
    assert data.gold is not None
    check_gold(SPEARMAN, data.gold)
    inputs, places, notes = encoded(model, [side for text in data.texts for side in _sides(text)])
    examples = list(zip(places[::2], places[1::2], strict=True))
    gold, aim = data.gold, torch.from_numpy(_unit(data.gold)).float()

    def predict(kept: Floats, rows: Rows, _which: Sequence[int]) -> Predictions:
        first, second = (kept[:, [row[side] for row in rows]] for side in (0, 1))
        cosine = np.einsum("vew,vew->ve", first, second, dtype=np.float64)
        return {"spearman": cosine, "pearson": cosine}

    def loss(kept: Tensor, rows: Rows, which: Sequence[int]) -> Tensor:
        first, second = (kept[[row[side] for row in rows]] for side in (0, 1))
        return ((first * second).sum(-1) - aim[list(which)].to(kept)) ** 2

    return Problem(
        "similarity",
        base_of(model),
        data,
        inputs,
        examples,
        embed,
        (SPEARMAN, PEARSON),
        predict,
        gold,
        loss,
        notes,
    )


def _sides(text: Any) -> tuple[str, str]:
    if isinstance(text, str):
        raise OptionError(
            "Similarity is of pairs, but “{text}” is one text. Name two columns of texts.", text=text
        )
    return text


def _unit(grades: np.ndarray) -> np.ndarray:
    """Return grades as shares: of 5 where they lie within 0 to 5, else of their range."""
    low, high = float(grades.min()), float(grades.max())
    if low >= 0 and high <= 5:
        return grades / (1.0 if high <= 1 else 5.0)
    return (grades - low) / (high - low)


def _classification(model: Model, data: Data, estimate: Data | None) -> Problem:
    assert data.gold is not None
    classifies = model.readout.kind == "classification"
    gold = _as_the_model(model, data) if classifies else data.gold
    _check_classes(data, gold, estimate)
    inputs, places, notes = encoded(model, data.texts)
    read: Reader
    if classifies:
        runs, read = model, _logits
    else:
        runs = base_of(model)
        read = _fitted(runs, data, estimate)
        said = message("This checkpoint has no classifier: one is fitted on the other part of the data.")
        notes = (said, *notes)

    def predict(kept: Floats, rows: Rows, _which: Sequence[int]) -> Predictions:
        classes = kept[:, [row[0] for row in rows]].argmax(-1)
        return {"accuracy": classes, "macro_f1": classes, "matthews": classes}

    def loss(kept: Tensor, rows: Rows, which: Sequence[int]) -> Tensor:
        logits = kept[[row[0] for row in rows]]
        aim = torch.from_numpy(gold[list(which)]).to(logits.device)
        return functional.cross_entropy(logits, aim, reduction="none")

    metrics = (ACCURACY, MACRO_F1, MATTHEWS)
    examples = [(place,) for place in places]
    return Problem("classification", runs, data, inputs, examples, read, metrics, predict, gold, loss, notes)


def _check_classes(data: Data, gold: np.ndarray, estimate: Data | None) -> None:
    """Raise OptionError where all examples that are reported on are of one class."""
    assert data.gold is not None
    if len(np.unique(gold)) > 1:
        return
    label = data.labels[int(data.gold[0])]
    if estimate is not None and (estimate.gold != data.gold[0]).any():
        raise OptionError(
            "The part to report on has the label {label} only. Give more examples, or another seed.",
            label=label,
        )
    raise OptionError(
        "All examples have the label {label}: there is nothing to tell apart. Give two labels at least.",
        label=label,
    )


def _logits(outputs: Any, _batch: dict[str, Tensor], _which: list[int]) -> Tensor:
    return outputs.logits


def _as_the_model(model: Model, data: Data) -> np.ndarray:
    """Return the gold as numbers of the model's classes: by name, or by number where the labels are numbers.

    Names are compared as they are, and only then whatever their case, so that classes A and a stay two.
    """
    assert data.gold is not None
    for alike in (str, str.casefold):
        ours, named = ([alike(name) for name in names] for names in (model.readout.labels, data.labels))
        if all(ours.count(name) == 1 for name in named):
            return np.array([ours.index(name) for name in named])[data.gold]
    numbers = [whole_number(name) for name in data.labels]
    if all(number is not None and 0 <= number < len(ours) for number in numbers):
        return np.array(numbers)[data.gold]
    raise OptionError(
        "The data has the labels {given}, but the classes of {name} are {wanted}. Name them so, or number them from 0.",
        given=", ".join(data.labels[:10]),
        name=model.name,
        wanted=", ".join(model.readout.labels[:10]),
    )


def _fitted(base: Model, data: Data, estimate: Data | None) -> Reader:
    """Return a reader of logits: a logistic regression on the whole model's embeddings, fitted once and frozen."""
    if estimate is None or estimate.gold is None:
        raise OptionError(
            "{name} has no classifier, and there is no other data to fit one on. Give a part to estimate on.",
            name=base.name,
        )
    inputs, places, _notes = encoded(base, estimate.texts)
    geometry = base.geometry
    nothing_off = np.zeros((1, geometry.layers, geometry.heads), dtype=bool)
    kept = plain(base, inputs, embed, nothing_off)[0][places]
    names = [data.labels.index(estimate.labels[i]) for i in estimate.gold]
    if len(set(names)) < len(data.labels):
        raise OptionError(
            "The part to fit the classifier on lacks some of the labels {labels}. Give more examples, or another seed.",
            labels=", ".join(data.labels[:10]),
        )
    fit = LogisticRegression(max_iter=2000).fit(kept, names)
    weight, bias = fit.coef_, fit.intercept_
    if len(weight) == 1:  # two classes have one row of weights
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    weights = torch.from_numpy(weight).float().to(base.network.device)
    biases = torch.from_numpy(bias).float().to(base.network.device)

    def read(outputs: Any, batch: dict[str, Tensor], which: list[int]) -> Tensor:
        return embed(outputs, batch, which) @ weights.T + biases

    return read


def _masked(model: Model, data: Data, seed: int) -> Problem:
    """Mask some words of each text, one at a time, all of its pieces together."""
    if model.readout.kind != "masked":
        raise OptionError(
            "{name} cannot fill in masked words: it has no head for them. Choose a masked language model.",
            name=model.name,
        )
    random = np.random.default_rng(seed)
    each = [_maskings(model, text, random) for text in data.texts]
    whole = [i for i, masked in enumerate(each) if masked]  # a text may spell nothing but special tokens
    left_out = len(data) - len(whole)
    if not whole:
        raise OptionError("None of the {count} texts has a word to mask. Give others.", count=left_out)
    notes = (message("{count} texts without a word to mask are left out.", count=left_out),)
    inputs: list[Inputs] = []
    at: list[tuple[list[int], list[int]]] = []  # of each input the masked places and what stood there
    examples: list[tuple[int, ...]] = []
    for masked in (each[i] for i in whole):
        examples.append(tuple(range(len(inputs), len(inputs) + len(masked))))
        inputs += [one for one, _places, _ids in masked]
        at += [(places, ids) for _one, places, ids in masked]
    head = head_of(model.network)

    def read(outputs: Any, _batch: dict[str, Tensor], which: list[int]) -> Tensor:
        """Give the log-probability of each masked word, and whether all of its pieces are the first guess."""
        rows = [row for row, i in enumerate(which) for _place in at[i][0]]
        places = [place for i in which for place in at[i][0]]
        ids = torch.tensor(
            [piece for i in which for piece in at[i][1]], device=outputs.last_hidden_state.device
        )
        states = outputs.last_hidden_state[rows, places][:, None]  # [masked, 1, model]
        logits = head(inputs_embeds=states, attention_mask=torch.ones_like(ids)[:, None]).logits[:, 0]
        chances = functional.log_softmax(logits.float(), dim=-1).gather(1, ids[:, None])[:, 0]
        hits = (logits.argmax(-1) == ids).to(chances.dtype)
        owner = torch.tensor(rows, device=ids.device)
        zero = chances.new_zeros(len(which))
        misses = zero.index_add(0, owner, 1 - hits)
        return torch.stack([zero.index_add(0, owner, chances), (misses == 0).to(zero.dtype)], dim=-1)

    def predict(kept: Floats, rows: Rows, _which: Sequence[int]) -> Predictions:
        means = np.stack([kept[:, list(row)].mean(axis=1, dtype=np.float64) for row in rows], axis=1)
        return {"pseudo_log_likelihood": means[..., 0], "top_1": means[..., 1]}

    def loss(kept: Tensor, rows: Rows, _which: Sequence[int]) -> Tensor:
        return torch.stack([-kept[list(row), 0].mean() for row in rows])

    metrics = (replace(MEAN, name="pseudo_log_likelihood"), replace(MEAN, name="top_1"))
    return Problem("masked", base_of(model), data.take(whole), inputs, examples, read, metrics, predict, None,
                   loss, notes if left_out else ())  # fmt: skip


def _maskings(
    model: Model, text: Any, random: np.random.Generator
) -> list[tuple[Inputs, list[int], list[int]]]:
    encoded = encode(model, text)
    tokens = encoded.tokens
    words = np.unique(tokens.word[~tokens.special])
    chosen = np.sort(random.permutation(words)[:WORDS])
    found = []
    for word in chosen:
        places = np.flatnonzero(tokens.word == word).tolist()
        ids = list(encoded.inputs["input_ids"])
        stood = [ids[place] for place in places]
        for place in places:
            ids[place] = int(model.tokenizer.mask_token_id)
        found.append((encoded.inputs | {"input_ids": ids}, places, stood))
    return found


def _fidelity(model: Model, data: Data) -> Problem:
    """How close the output stays to the whole model's: the cosine of embeddings, or minus the divergence of classes."""
    has_classes = model.readout.kind == "classification"
    runs, read = (model, _logits) if has_classes else (base_of(model), embed)
    inputs, places, notes = encoded(model, data.texts)
    geometry = model.geometry
    whole = plain(runs, inputs, read, np.zeros((1, geometry.layers, geometry.heads), dtype=bool))[0]
    close = _minus_divergence if has_classes else _cosine
    name = "minus_divergence" if has_classes else "cosine"

    def predict(kept: Floats, rows: Rows, which: Sequence[int]) -> Predictions:
        first = whole[[places[i] for i in which]].astype(np.float64)
        return {name: close(first, kept[:, [row[0] for row in rows]].astype(np.float64))}

    metrics = (replace(MEAN, name=name),)
    examples = [(place,) for place in places]
    return Problem("fidelity", runs, data, inputs, examples, read, metrics, predict, None, None, notes)


def _cosine(whole: Floats, kept: Floats) -> Floats:
    lengths = np.linalg.norm(whole, axis=-1) * np.linalg.norm(kept, axis=-1)
    return (whole * kept).sum(-1) / np.maximum(lengths, 1e-12)


def _minus_divergence(whole: Floats, kept: Floats) -> Floats:
    """Return minus KL(whole, kept) in bits of the classes that two tables of logits say."""
    from scipy.special import log_softmax

    first, second = log_softmax(whole, axis=-1), log_softmax(kept, axis=-1)
    return -(np.exp(first) * (first - second)).sum(-1) / np.log(2)
