"""A network as an ONNX file says what torch says, on batches and lengths that it was not exported with."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import onnx_file
from analysis.capture import encode, pad
from analysis.models import open_model
from analysis.onnx_file import PACKAGES, OnnxError, Said, check_packages, export, to_bytes
from analysis.saving import smaller
from tests import tiny
from tests.conftest import ROOT
from tests.test_surgery import UNEVEN, mask_of

MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
CLOSE = 1e-4  # of the largest output
CASES = {  # the family, the head, what was removed, what the output is called
    "bert": ("bert", "headless", UNEVEN, "sentence_embedding"),  # with an emptied layer
    "roberta": ("roberta", "classification", mask_of("0.1,2.0,2.3"), "logits"),
    "distilbert": ("distilbert", "masked", mask_of("1.0,1.1,1.3"), "logits"),
    "modernbert": ("modernbert", "headless", mask_of("0.0,1.2,1.3"), "sentence_embedding"),
}
TEXTS = [  # none is among those that the export is made with
    "cat",
    "the dog and the cat and a bird sat on the mat because it was too tired to cross the street.",
    "a good film",
    "is this film bad?",
    "the animal",
]
PAIR = ("the cat sat on the mat", "a dog was tired")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that gives a smaller model and its ONNX file, each exported once."""
    root, made = tmp_path_factory.mktemp("onnx"), {}

    def get(name):
        if name not in made:
            family, kind, mask, _output = CASES[name]
            model = smaller(open_model(str(tiny.save_tiny(root / name, family, kind, seed=4))), mask)
            path = root / f"{name}.onnx"
            before = {key: tensor.clone() for key, tensor in model.network.state_dict().items()}
            config = model.network.config.to_dict()
            apart = export(model, path)
            assert apart < CLOSE
            assert path.stat().st_size > 4 * model.geometry.parameters, "the weights are in it"
            assert sorted(p.name for p in root.glob("*.onnx*")) == sorted(f"{n}.onnx" for n in [*made, name])
            assert model.network.config.to_dict() == config
            assert all(torch.equal(model.network.state_dict()[key], t) for key, t in before.items())
            made[name] = model, path
        return made[name]

    return get


def session_of(path):
    """Open an ONNX file."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def both(model, path, texts):
    """Return what torch and the file say of the real tokens of some texts as one batch."""
    inputs = pad(model, [encode(model, text).inputs for text in texts])
    session = session_of(path)
    assert {one.name for one in session.get_inputs()} == set(inputs)
    with torch.no_grad():
        expected = Said(model).eval()(**inputs).numpy()
    [found] = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    assert found.shape == expected.shape
    real = inputs["attention_mask"].bool().numpy()
    return (expected[real], found[real]) if expected.ndim == 3 else (expected, found)


@needs_onnx
@pytest.mark.parametrize("name", CASES)
def test_the_file_says_what_torch_says(exported, name):
    model, path = exported(name)
    [output] = session_of(path).get_outputs()
    assert output.name == CASES[name][3]
    for texts in (TEXTS[:1], TEXTS[1:2], TEXTS, [*TEXTS, *TEXTS], [PAIR], [PAIR, TEXTS[0]]):
        expected, found = both(model, path, texts)
        assert np.abs(found - expected).max() <= CLOSE * np.abs(expected).max()
    if output.name == "sentence_embedding":
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    if found.shape[0] == 2:  # one row a text: the same alone and padded beside a longer one
        alone = both(model, path, TEXTS[:1])[1]
        np.testing.assert_allclose(alone[0], found[1], atol=CLOSE * np.abs(found).max())


@needs_onnx
def test_the_heads_that_are_gone_are_gone_from_the_file(exported):
    model, path = exported("bert")
    whole = open_model(str(model.folder))
    expected, found = both(model, path, TEXTS)
    inputs = pad(whole, [encode(whole, text).inputs for text in TEXTS])
    with torch.no_grad():
        before = Said(whole).eval()(**inputs).numpy()
    assert np.abs(found - before).max() > 100 * np.abs(found - expected).max() + 1e-2
    assert path.stat().st_size < 4 * whole.geometry.parameters + 500_000


@needs_onnx
def test_the_second_sentence_is_told_from_the_first(exported):
    model, path = exported("bert")
    inputs = {name: value.numpy() for name, value in pad(model, [encode(model, PAIR).inputs]).items()}
    assert inputs["token_type_ids"].any()
    session = session_of(path)
    [found] = session.run(None, inputs)
    [without] = session.run(None, inputs | {"token_type_ids": np.zeros_like(inputs["token_type_ids"])})
    assert np.abs(found - without).max() > 1e-2
    for name in ("roberta", "distilbert", "modernbert"):  # these have no types of tokens
        assert {one.name for one in session_of(exported(name)[1]).get_inputs()} == {
            "input_ids",
            "attention_mask",
        }


@needs_onnx
def test_a_file_that_says_something_else_is_not_kept(exported, tmp_path, monkeypatch):
    model, path = exported("bert")
    other = smaller(model, mask_of("2.3"))
    monkeypatch.setattr(torch.onnx, "export", lambda said, args, part, **options: shutil.copy(path, part))
    with pytest.raises(OnnxError, match=r"differs from the network by \d.* it was not kept"):
        export(other, tmp_path / "other.onnx")
    assert list(tmp_path.iterdir()) == []
    assert to_bytes(model) == path.read_bytes()


@needs_onnx
def test_what_the_exporter_cannot_do_is_one_sentence(exported, tmp_path, monkeypatch):
    def full(said, args, part, **options):
        Path(part).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC) + "\nand more")

    monkeypatch.setattr(torch.onnx, "export", full)
    (tmp_path / "there.onnx").write_bytes(b"mine")
    with pytest.raises(OnnxError, match=r"cannot be written: .*No space left on device") as caught:
        export(exported("bert")[0], tmp_path / "there.onnx")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"


@pytest.mark.parametrize("gone", [PACKAGES, PACKAGES[:1], PACKAGES[1:]], ids=len)
def test_packages_that_are_absent_are_named_with_what_to_run(monkeypatch, tmp_path, gone):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        onnx_file.importlib.util, "find_spec", lambda name: None if name in gone else (real(name) or object())
    )
    said = f"An ONNX file needs {', '.join(gone)}. Run: pip install -r requirements-onnx.txt"
    with pytest.raises(OnnxError) as caught:
        check_packages()
    assert str(caught.value) == said
    with pytest.raises(OnnxError, match="An ONNX file needs"):
        export(object.__new__(onnx_file.Model), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    asked = (ROOT / "requirements-onnx.txt").read_text(encoding="utf-8")
    assert [line.split("==")[0] for line in asked.splitlines() if "==" in line] == list(PACKAGES)


def test_nothing_is_asked_where_all_is_there(monkeypatch):
    monkeypatch.setattr(onnx_file.importlib.util, "find_spec", lambda name: object())
    check_packages()
