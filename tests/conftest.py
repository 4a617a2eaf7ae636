"""What every test shares: no network, checked shapes, one thread, and the two real models.

The import hook makes beartype check the jaxtyping annotations of ``analysis`` at every call, here only.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
# Before anything imports torch: the tests themselves run side by side, a second thread of each only waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

# What runs for every layer of every pass is checked by one test only, in a process of its own: it takes twice the time.
HOT = () if os.environ.get("HEADROOM_SHAPES") == "all" else ("probe", "suffix", "passes", "anatomy")
_modules = [path.stem for path in (Path(__file__).resolve().parents[1] / "analysis").glob("*.py")]
_hook = jaxtyping.install_import_hook(
    [f"analysis.{name}" for name in _modules if name not in HOT], "beartype.beartype"
)

torch.set_num_threads(1)
settings.register_profile(
    "headroom", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headroom")

ROOT = Path(__file__).resolve().parents[1]
SST2 = ROOT.parent / "shared" / "models" / "minilm-sst2"


@pytest.fixture(scope="session")
def bundled():
    """The bundled model, opened once and shared: nothing may change it."""
    from analysis.models import open_model

    return open_model()


@pytest.fixture(scope="session")
def sst2():
    """The fine-tuned classifier that lies beside the repository on machines that have it."""
    from analysis.models import open_model

    if not SST2.is_dir():
        pytest.skip(f"no classifier at {SST2}")
    return open_model(str(SST2))
