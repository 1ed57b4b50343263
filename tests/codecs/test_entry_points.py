"""A codec of another package, found by its entry point."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import zellige
from zellige.errors import MetadataError, UnknownCodecError

MODULE = """
from dataclasses import dataclass
from typing import ClassVar, Literal
from zellige.codecs import BytesBytesCodec

@dataclass(frozen=True)
class Flip(BytesBytesCodec):
    bits: Literal[255, 15] = 255

    name: ClassVar[str] = "acme.flip"

    def encoded_size(self, nbytes):
        return nbytes

    def encoded_bound(self, nbytes):
        return nbytes

    def encode(self, raw):
        return bytes(b ^ self.bits for b in raw)

    def decode(self, raw, limit):
        return self.encode(raw)
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package `acme`, as an installer would leave it."""
    (tmp_path / "acme_codecs.py").write_text(MODULE)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zellige.codecs]\nacme.flip = acme_codecs:Flip\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("acme_codecs", None)


def test_a_codec_of_another_package_is_found_by_name(installed):
    store = {}
    zellige.create_array(store, data=np.array([1, 2, 255], "uint8"), compressors="acme.flip")
    assert store["c/0"] == bytes([254, 253, 0])
    assert zellige.open(store)[...].tolist() == [1, 2, 255]


def test_its_fields_are_its_configuration(installed):
    codec = zellige.codecs.parse_codec({"name": "acme.flip", "configuration": {"bits": 15}})
    assert codec.to_json() == {"name": "acme.flip", "configuration": {"bits": 15}}
    assert zellige.codecs.parse_codec("acme.flip").configuration() == {"bits": 255}
    with pytest.raises(MetadataError, match=r"'acme\.flip': bits must be one of 255, 15, found 7"):
        zellige.codecs.parse_codec({"name": "acme.flip", "configuration": {"bits": 7}})


def test_its_name_is_among_the_suggestions(installed):
    with pytest.raises(UnknownCodecError, match=r"did you mean 'acme\.flip'"):
        zellige.codecs.parse_codec("acme.flop")


def test_without_the_package_the_name_is_unknown():
    with pytest.raises(UnknownCodecError, match=r"'acme\.flip' is not known"):
        zellige.codecs.parse_codec("acme.flip")
