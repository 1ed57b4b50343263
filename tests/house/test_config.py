"""Settings: typed, for a while or for a process, from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zellige
from zellige.settings import ArrayConfig, Config

DEFAULTS: dict[str, Any] = {
    "default_zarr_format": 3,
    "json_indent": 2,
    "strict_json": False,
    "array.order": "C",
    "array.write_empty_chunks": False,
    "array.read_missing_chunks": True,
    "array.casting": "same_value",
    "array.durability": None,
    "array.target_shard_size_bytes": None,
    "array.uneven_inner_chunks": False,
    "array.rectilinear_chunks": True,
    "array.sharding_coalesce_max_gap_bytes": None,
    "array.sharding_coalesce_max_bytes": 16777216,
    "array.allow_unsafe_pickle_decode": False,
    "async.concurrency": 10,
    "async.timeout": None,
    "codecs.max_variable_chunk_bytes": 1 << 30,
    "memory.keep_bytes": 1 << 28,
    "threading.max_workers": None,
    "remote.concurrency": 64,
    "remote.max_retries": 5,
    "remote.timeout": 120,
    "lease.timeout": 300,
    "lease.wait": 60,
}


@pytest.fixture
def config() -> Iterator[Config]:
    """The settings of the process, which must be found as they were."""
    before = zellige.config.to_dict()
    yield zellige.config
    assert zellige.config.to_dict() == before


# -- asking ---------------------------------------------------------------------------------------


def test_the_keys_their_defaults_and_where_they_are_explained():
    config = Config()
    assert {key: config[key] for key in config} == DEFAULTS
    assert list(config) == list(DEFAULTS)
    assert all(f"`{key}`" in (Config.__doc__ or "") for key in config)


def test_a_setting_is_asked_for_by_its_key(config):
    assert config.get("array.order") == config["array.order"] == "C"
    assert config.get("array.order", default="F") == "C"
    assert config.get("json_indent", None) == 2
    assert "array.order" in config
    assert "array" in config
    assert "order" not in config
    assert "array.colour" not in config
    assert 5 not in config


def test_a_section_is_a_dict(config):
    assert config.get("async") == config["async"] == {"concurrency": 10, "timeout": None}
    assert config.get("array")["sharding_coalesce_max_bytes"] == 16 << 20
    sections = {"array", "async", "codecs", "lease", "memory", "threading", "remote"}
    assert config.to_dict().keys() == {"default_zarr_format", "json_indent", "strict_json", *sections}
    assert config.to_dict()["threading"] == {"max_workers": None}
    config.to_dict()["array"]["order"] = config.get("array")["order"] = "F"
    assert config["array.order"] == "C"


def test_settings_are_printed_one_on_each_line(config, capsys):
    config.pprint()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{key} = {value!r}" for key, value in DEFAULTS.items()]


@pytest.mark.parametrize("key", ["array.oder", "arry.order", "array_order", "order"])
def test_an_unknown_key_names_the_nearest_one(config, key):
    for ask in (config.get, config.__getitem__, lambda key: config.set({key: "F"})):
        with pytest.raises(KeyError, match=r"did you mean 'array\.order'\?"):
            ask(key)
    assert config.get(key, default=None) is None
    assert config.get(key, 7) == 7


def test_an_unknown_key_like_no_other_names_them_all(config):
    with pytest.raises(KeyError, match=r"known: default_zarr_format, .*threading\.max_workers"):
        config.get("zzz")
    with pytest.raises(KeyError, match="did you mean 'async'"):
        config.get("asynch")


# -- changing -------------------------------------------------------------------------------------


def test_settings_for_a_while(config):
    with config.set({"array.order": "F", "array.write_empty_chunks": True}) as inside:
        assert inside is config
        array = zellige.zeros((2, 2))
        assert array.order == "F"
        assert array.config.write_empty_chunks
        assert zellige.zeros(2, order="C").order == "C"
        assert zellige.zeros(2, config={"write_empty_chunks": False}).config.write_empty_chunks is False
        assert zellige.zeros(2, config=array.config, order="C").config.write_empty_chunks
    assert zellige.zeros(2).order == "C"


def test_settings_for_good_until_reset(config):
    config.set({"array.order": "F"})
    assert config["array.order"] == "F"
    config.update({"async": {"timeout": 2.5}}, json_indent=None)
    assert (config["async.timeout"], config["json_indent"]) == (2.5, None)
    config.reset()
    assert config["array.order"] == "C"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"array.order": "F", "async.timeout": 1}, {}),
        ({"array": {"order": "F"}, "async": {"timeout": 1}}, {}),
        ({}, {"array__order": "F", "async__timeout": 1}),
        (None, {"array": {"order": "F"}, "async__timeout": 1}),
        ({"async": {"timeout": 1}, "array": {}}, {"array__order": "F"}),
        ({"array.order": "C", "async.timeout": 1}, {"array__order": "F"}),
        ({"array": {"order": "F"}}, {"array": {}, "async.timeout": 1}),
    ],
    ids=repr,
)
def test_the_ways_to_name_settings(config, given, named):
    with config.set(given, **named):
        assert (config["array.order"], config["async.timeout"]) == ("F", 1)


def test_blocks_nest_and_each_restores_what_it_has_set_and_nothing_else(config):
    with config.set({"array.order": "F"}):
        with config.set({"array.order": "C", "json_indent": 4}):
            config.set({"async.concurrency": 3})
        assert config["array.order"] == "F"
        assert config["json_indent"] == 2
        assert config["async.concurrency"] == 3
    assert config["async.concurrency"] == 3
    config.reset()


def test_blocks_restore_after_an_error_and_when_they_overlap(config):
    with pytest.raises(ZeroDivisionError), config.set(json_indent=0):
        raise ZeroDivisionError
    assert config["json_indent"] == 2
    one, other = config.set(json_indent=0), config.set(array__order="F")
    with one:
        pass
    assert (config["json_indent"], config["array.order"]) == (2, "F")
    with other:
        pass


GOOD_SETTINGS: list[tuple[str, list[Any]]] = [
    ("default_zarr_format", [2, 3]),
    ("json_indent", [None, 0, 8]),
    ("strict_json", [True, False]),
    ("array.order", ["C", "F"]),
    ("array.write_empty_chunks", [True, False]),
    ("array.read_missing_chunks", [True, False]),
    ("array.casting", ["same_value", "unsafe"]),
    ("array.durability", ["process", "power", None]),
    ("array.target_shard_size_bytes", [None, 1, 1 << 40]),
    ("array.uneven_inner_chunks", [True, False]),
    ("array.rectilinear_chunks", [True]),
    ("array.sharding_coalesce_max_gap_bytes", [None, 0, 1]),
    ("array.sharding_coalesce_max_bytes", [1]),
    ("array.allow_unsafe_pickle_decode", [False]),
    ("async.concurrency", [1, 128]),
    ("async.timeout", [None, 1, 0.5]),
    ("codecs.max_variable_chunk_bytes", [1, 1 << 40]),
    ("memory.keep_bytes", [0, 1, 1 << 40]),
    ("threading.max_workers", [None, 1, 64]),
    ("remote.concurrency", [1, 256]),
    ("remote.max_retries", [0, 10]),
    ("remote.timeout", [1, 0.5]),
    ("lease.timeout", [0, 0.5, 86400]),
    ("lease.wait", [0, 0.5, 86400]),
]

BAD_SETTINGS: list[tuple[str, list[Any]]] = [
    ("default_zarr_format", [1, 4, "3", 3.0, None, True]),
    ("json_indent", [-1, 9, "2", 2.0, True]),
    ("strict_json", [1, None, "yes"]),
    ("array.order", ["K", "c", None, 0, ["C"]]),
    ("array.write_empty_chunks", [1, None, "True"]),
    ("array.read_missing_chunks", [0, None]),
    ("array.casting", ["safe", None, 1]),
    ("array.durability", ["disk", True, 0]),
    ("array.target_shard_size_bytes", [0, 1.5, "1"]),
    ("array.uneven_inner_chunks", [None, 1, "True"]),
    ("array.rectilinear_chunks", [False, None, 1]),
    ("array.sharding_coalesce_max_gap_bytes", [-1, 1.0]),
    ("array.sharding_coalesce_max_bytes", [0, None]),
    ("array.allow_unsafe_pickle_decode", [True, None, 0]),
    ("async.concurrency", [0, None, 1.5]),
    ("async.timeout", [0, -1.0, float("nan"), "1", True]),
    ("codecs.max_variable_chunk_bytes", [0, None, True, 1.0, "1"]),
    ("memory.keep_bytes", [-1, None, True, 1.0, "1"]),
    ("threading.max_workers", [0, 1.5, True, "2"]),
    ("remote.concurrency", [0, None, 1.5]),
    ("remote.max_retries", [-1, None, True]),
    ("remote.timeout", [0, -1, None, "1", True]),
    ("lease.timeout", [-1, None, "1", True]),
    ("lease.wait", [-1, None, "1", True]),
]


def test_every_key_has_its_cases():
    assert [key for key, _ in GOOD_SETTINGS] == [key for key, _ in BAD_SETTINGS] == list(DEFAULTS)


@pytest.mark.parametrize(("key", "values"), GOOD_SETTINGS, ids=[key for key, _ in GOOD_SETTINGS])
def test_good_values_are_taken_as_they_are(config, key, values):
    for value in values:
        with config.set({key: value}):
            assert config[key] is value


@pytest.mark.parametrize(("key", "values"), BAD_SETTINGS, ids=[key for key, _ in BAD_SETTINGS])
def test_bad_values_are_refused_and_nothing_changes(config, key, values):
    for value in values:
        with pytest.raises(ValueError, match=f"setting {key} must be .*; found "):
            config.set({"json_indent": 7, "array.write_empty_chunks": True, key: value})
    with pytest.raises(KeyError):
        config.set({key: DEFAULTS[key], "colour": 1})
    with pytest.raises(ValueError, match=f"setting {key} must be"):
        config.set({key: {"deeper": 1}})
    with pytest.raises(KeyError, match="there is no setting"):
        config.set({f"{key}.deeper": 1})


def test_what_can_never_be_set_says_why(config):
    with pytest.raises(ValueError, match=r"chunks of any size are always on.*chunk_grid='regular' refuses uneven ones"):
        config.set({"array.rectilinear_chunks": False})
    with pytest.raises(ValueError, match="to decode a pickle is to run the code in it"):
        config.set({"array.allow_unsafe_pickle_decode": True})


# -- for one array --------------------------------------------------------------------------------


def test_an_array_takes_its_own_settings_and_no_others():
    assert list(ArrayConfig.__slots__) == [
        "order",
        "write_empty_chunks",
        "read_missing_chunks",
        "casting",
        "durability",
        "sharding_coalesce_max_gap_bytes",
        "sharding_coalesce_max_bytes",
        "uneven_inner_chunks",
    ]
    given = {"order": "F", "sharding_coalesce_max_gap_bytes": 0, "sharding_coalesce_max_bytes": 1}
    assert ArrayConfig.of(given) == ArrayConfig(**given)
    assert ArrayConfig.of() == ArrayConfig.of({}) == ArrayConfig()
    with pytest.raises(ValueError, match=r"array\.sharding_coalesce_max_bytes must be"):
        ArrayConfig.of({"sharding_coalesce_max_bytes": 0})
    with pytest.raises(ValueError, match=r"array\.order must be"):
        ArrayConfig.of({"order": "K"})
    with pytest.raises(KeyError, match=r"array\.target_shard_size_bytes is a setting of the process"):
        ArrayConfig.of({"target_shard_size_bytes": 5})
    with pytest.raises(KeyError, match=r"did you mean 'array\.order'"):
        ArrayConfig.of({"oder": "F"})


# -- from the environment -------------------------------------------------------------------------


def variable(key: str) -> str:
    return "ZELLIGE_" + key.upper().replace(".", "__")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("threading.max_workers", "3", 3),
        ("threading.max_workers", "None", None),
        ("array.order", "F", "F"),
        ("array.write_empty_chunks", "True", True),
        ("array.read_missing_chunks", "false", False),
        ("array.uneven_inner_chunks", "true", True),
        ("array.target_shard_size_bytes", " 1_000_000 ", 1_000_000),
        ("async.timeout", "2.5", 2.5),
        ("async.timeout", "1e3", 1000.0),
        ("default_zarr_format", "2", 2),
        ("json_indent", "none", None),
    ],
)
def test_a_variable_sets_its_key(monkeypatch, key, text, value):
    monkeypatch.setenv(variable(key), text)
    config = Config()
    assert config[key] == value
    assert {other: config[other] for other in config} == {**DEFAULTS, key: value}
    config.set({key: DEFAULTS[key]})
    config.reset()
    assert config[key] == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("threading.max_workers", "many"),
        ("threading.max_workers", "--3"),
        ("threading.max_workers", "²"),
        ("threading.max_workers", "2.0"),
        ("threading.max_workers", ""),
        ("async.timeout", "nan"),
        ("array.rectilinear_chunks", "False"),
        ("array.allow_unsafe_pickle_decode", "1"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(monkeypatch, key, text):
    monkeypatch.setenv(variable(key), text)
    with pytest.raises(ValueError, match=f"^environment variable {variable(key)}: setting {key} must be "):
        Config()


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(zellige.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_variables_are_read_when_zellige_is_first_used():
    code = "import sys, zellige; print(zellige.config.get('array.order'), 'difflib' in sys.modules)"
    assert in_a_process(code, ZELLIGE_ARRAY__ORDER="F").stdout.split() == ["F", "False"]
    failed = in_a_process("import zellige; zellige.open_array", ZELLIGE_THREADING__MAX_WORKERS="many")
    assert failed.returncode
    assert "variable ZELLIGE_THREADING__MAX_WORKERS: setting threading.max_workers must be an int" in failed.stderr
