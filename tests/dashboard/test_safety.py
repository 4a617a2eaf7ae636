"""The server answers this machine alone, and reports to no one."""

from __future__ import annotations

import tomllib

from tests.dashboard.driver import ROOT


def test_the_shipped_settings_keep_the_dashboard_at_home():
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["address"] == "localhost"
    assert settings["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert settings["browser"]["gatherUsageStats"] is False
    assert not {"enableCORS", "enableXsrfProtection"} & settings["server"].keys()  # on by default
    assert settings["client"]["showErrorLinks"] is False
