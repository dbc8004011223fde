"""The reader satisfies geomx's laws of networks, and converts tables to delays."""

import pytest
from geomx_pings import PingsConfig, pings

import geomx
from geomx.testing import check_plugin

TABLE = "site,lyon,rome,oslo\nlyon,,20,40\nrome,22,,60\noslo,40,60,\n"


def test_laws() -> None:
    check_plugin("pings")


def test_half_a_round_trip_is_the_delay(tmp_path) -> None:
    file = tmp_path / "europe.pings"
    file.write_text(TABLE)
    network = pings(PingsConfig(str(file)))
    assert network["central"]["name"] == "lyon"
    assert network["delay_ms"]["lyon"] == {"oslo": 20.0, "rome": 10.5}


def test_a_file_is_known_by_its_suffix(tmp_path) -> None:
    file = tmp_path / "europe.pings"
    file.write_text(TABLE)
    words = [f"network={file}", "network.workers=1", "workload=tiny", "iterations=2"]
    results = geomx.run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    assert results.summary["network"]["name"] == "europe"
    assert results.summary["network"]["workers"] == 3


def test_what_is_no_time_is_named(tmp_path) -> None:
    file = tmp_path / "bad.pings"
    file.write_text(TABLE.replace("60", "far"))
    with pytest.raises(geomx.ConfigError, match="rome to oslo is 'far'"):
        pings(PingsConfig(str(file)))
