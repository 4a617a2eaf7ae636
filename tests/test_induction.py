"""Induction scores against plain attention weights, and the random passages they are taken on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analysis.induction import induction, links, ordinary_tokens, passages
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.toy import make_toy
from tests import tiny


def reference(model, found):
    """Return [direction, layer, head] the mean weight by looking for the copies of every token, text by text."""
    plain = tiny.twin(model.network, "eager")
    scores = ([], [])
    for passage in found:
        ids = passage.encoded.inputs["input_ids"]
        with torch.no_grad():
            out = plain(input_ids=torch.tensor([ids]), output_attentions=True)
        weights = torch.stack(out.attentions)[:, 0].double().numpy()  # [layer, head, query, key]
        copies = {i: [p for p, other in enumerate(ids) if other == i] for i in ids}
        twice = [i for i in dict.fromkeys(ids) if len(copies[i]) == 2]
        for i in twice:
            earlier, later = copies[i]
            if i != twice[-1]:
                scores[0].append(weights[:, :, later, earlier + 1])
            if i != twice[0]:
                scores[1].append(weights[:, :, earlier, later - 1])
    return np.array([np.mean(part, axis=0) for part in scores])


def test_scores_equal_plain_attention_weights(bundled):
    found = induction(bundled, sequences=10, seed=3)
    wanted = reference(bundled, passages(bundled, None, 10, 3))
    np.testing.assert_allclose(found.mean, wanted, atol=1e-5)
    assert found.mean.shape == (2, 6, 12)
    assert found.sequences == 10
    np.testing.assert_array_equal(found.table("induction_back"), found.mean[1])


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "albert"])
def test_other_families_are_scored_alike(tmp_path, family):
    model = open_model(str(tiny.save_tiny(tmp_path / family, family)))
    found = induction(model, sequences=5, seed=1)
    np.testing.assert_allclose(found.mean, reference(model, passages(model, None, 5, 1)), atol=1e-5)


def test_links_by_hand():
    # 0 [CLS], 1 2 3 the first copy, 4 5 6 the second, 7 [SEP]
    forward, back = links(1, 3).tolist()
    assert forward == [[4, 2], [5, 3]]
    assert back == [[2, 4], [3, 5]]


def test_passages_are_random_tokens_said_twice_in_the_models_frame(bundled):
    found = list(passages(bundled, (5, 9), 60, 0))
    tokenizer = bundled.tokenizer
    lengths = set()
    for passage in found:
        ids = passage.encoded.inputs["input_ids"]
        assert tokenizer.convert_ids_to_tokens([ids[0], ids[-1]]) == ["[CLS]", "[SEP]"]
        k = (len(ids) - 2) // 2
        lengths.add(k)
        assert ids[1 : k + 1] == ids[k + 1 : -1]
        assert len(set(ids[1 : k + 1])) == k
        assert set(passage.encoded.inputs) == {"input_ids", "token_type_ids", "attention_mask"}
        assert set(passage.encoded.inputs["attention_mask"]) == {1}
        assert passage.encoded.segment == [-1] + [0] * 2 * k + [-1]
    assert lengths == {5, 6, 7, 8, 9}
    assert len({tuple(passage.encoded.inputs["input_ids"]) for passage in found}) == 60


def test_roberta_has_its_own_frame(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path, "roberta")))
    ids = next(passages(model, (4, 4), 1, 0)).encoded.inputs["input_ids"]
    pieces = model.tokenizer.convert_ids_to_tokens(ids)
    assert (pieces[0], pieces[-1], len(pieces)) == ("<s>", "</s>", 10)
    assert not set(pieces[1:-1]) & {"<s>", "</s>", "<pad>", "<unk>", "<mask>"}


def test_ordinary_tokens_are_neither_special_nor_pieces_nor_placeholders(bundled):
    pieces = bundled.tokenizer.convert_ids_to_tokens(ordinary_tokens(bundled))
    assert len(pieces) > 20_000
    assert {"the", "guitar", "mat"} <= set(pieces)
    assert not {"[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "##s", "[unused5]"} & set(pieces)
    assert not any(piece.startswith(("##", "[unused")) for piece in pieces)


def test_scores_are_shares_with_intervals_and_depend_on_the_seed_alone(bundled):
    found = induction(bundled, sequences=20)
    again = induction(bundled, sequences=20)
    for name in ("mean", "low", "high"):
        table = getattr(found, name)
        np.testing.assert_array_equal(table, getattr(again, name))
        assert table.min() >= 0
        assert table.max() <= 1
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()
    assert (found.high > found.low).all()
    assert 1 / 50 < found.chance < 1 / 18
    assert not np.array_equal(found.mean, induction(bundled, sequences=20, seed=1).mean)


def test_chance_is_one_token_of_all(bundled):
    found = induction(bundled, length=(9, 9), sequences=3)
    assert found.chance == pytest.approx(1 / 20)
    assert found.queries == 3 * 8


def test_intervals_narrow_with_more_sequences(bundled):
    few, many = induction(bundled, sequences=16), induction(bundled, sequences=144)
    narrower = (many.high - many.low) / (few.high - few.low)
    assert 0.2 < np.median(narrower) < 0.5  # 1 / 3


def test_the_frame_has_a_row_a_head(bundled):
    found = induction(bundled, sequences=2)
    table = found.frame()
    assert table.columns.tolist() == [
        "layer", "head", "induction", "induction_low", "induction_high",
        "induction_back", "induction_back_low", "induction_back_high",
    ]  # fmt: skip
    assert table.induction_back[13] == found.mean[1, 1, 1]


def test_a_model_that_reads_little_gets_shorter_passages(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path, max_position_embeddings=14)))
    lengths = {len(p.encoded.segment) for p in passages(model, None, 5, 0)}
    assert lengths == {14}  # 6 tokens twice, and [CLS] and [SEP]
    assert induction(model, sequences=2).chance == pytest.approx(1 / 14)


@pytest.mark.parametrize("length", [(2, 8), (9, 8), (8, 400), (0, 0)])
def test_lengths_that_cannot_be_are_refused(bundled, length):
    with pytest.raises(OptionError, match=f"{length[0]} to {length[1]} tokens.* 3 to 255 tokens"):
        induction(bundled, length=length)


def test_a_model_that_reads_too_little_is_refused(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path, max_position_embeddings=6)))
    with pytest.raises(OptionError, match="reads longer texts"):
        induction(model)


def test_no_sequence_and_the_toy_are_refused(bundled):
    with pytest.raises(OptionError, match="1 at least"):
        induction(bundled, sequences=0)
    with pytest.raises(OptionError, match="neither positions nor a vocabulary"):
        induction(make_toy())


def test_progress_is_told_batch_by_batch(bundled):
    seen = []
    induction(bundled, sequences=20, on_progress=seen.append)
    assert seen == [16, 20]
