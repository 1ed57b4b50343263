"""Documents from outside: text that is no document, nesting, repeated keys, and numbers that ask for memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from documents import (
    BYTES,
    CHUNKS,
    FIRST,
    GOOD,
    HUGE,
    SECOND,
    SHAPES,
    compressed,
    document,
    in_place_of,
    open_document,
    rectilinear,
    regular,
)
from zellige.errors import MetadataError
from zellige.metadata.json import as_integer

# -- refused: text -------------------------------------------------------------------------------

TEXTS = {
    "nothing": (b"", ""),
    "blanks": (b"  \n", ""),
    "cut off": (json.dumps(GOOD).encode()[:-1], ""),
    "two documents": (json.dumps(GOOD) * 2, ""),
    "a comma too much": (json.dumps(GOOD)[:-1] + ",}", ""),
    "single quotes": (str(GOOD), ""),
    "a list": ("[]", ""),
    "a string": ('"array"', ""),
    "null": ("null", ""),
    "NaN": ("NaN", ""),
    "not UTF-8": (in_place_of("attributes", '{"a": "x"}').encode().replace(b'"x"', b'"\xff"'), ""),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), ""),
    "brackets": ("[" * 100_000, ""),
    "deep lists": (in_place_of("shape", "[" * 100_000 + "]" * 100_000), ""),
    "deep objects": (in_place_of("attributes", '{"a":' * 100_000 + "1" + "}" * 100_000), ""),
    "a huge length": (in_place_of("shape", f"[4, 1{'0' * 5000}]"), ""),  # more digits than Python reads
    "a huge edge": (
        in_place_of("chunk_grid", json.dumps(rectilinear(["@"], 3)).replace('"@"', "9" * 4000)),
        f"{SHAPES}[0]",
    ),
    "NaN as a length": (in_place_of("shape", "[4, NaN]"), "shape[1]"),
    "Infinity as a length": (in_place_of("shape", "[4, Infinity]"), "shape[1]"),
    "NaN as a fill value": (in_place_of("fill_value", "NaN").replace("int16", "float32"), "fill_value"),
    "-Infinity as a fill value": (in_place_of("fill_value", "-Infinity").replace("int16", "float32"), "fill_value"),
    "1e400 as a fill value": (in_place_of("fill_value", "1e400").replace("int16", "float64"), "fill_value"),
    "an integer with an exponent": (in_place_of("fill_value", "7e0"), "fill_value"),
    "a length with an exponent": (in_place_of("shape", "[4, 6e0]"), "shape[1]"),
    "NaN as a level": (
        in_place_of("codecs", '["bytes", {"name": "gzip", "configuration": {"level": NaN}}]'),
        f"{SECOND}.level",
    ),
    "shape twice": (json.dumps(GOOD)[:-1] + ', "shape": [4, 6]}', "shape"),
    "attributes twice": (json.dumps(GOOD)[:-1] + ', "attributes": {}, "attributes": {}}', "attributes"),
    "type name twice": (in_place_of("data_type", '{"name": "int16", "name": "int32"}'), "data_type.name"),
    "type configuration twice": (
        in_place_of("data_type", '{"name": "int16", "configuration": {"a": 1, "a": 1}}'),
        "data_type.configuration.a",
    ),
    "grid name twice": (in_place_of("chunk_grid", '{"name": "regular", "name": "rectilinear"}'), "chunk_grid.name"),
    "chunk shape twice": (
        in_place_of(
            "chunk_grid", '{"name": "regular", "configuration": {"chunk_shape": [2, 3], "chunk_shape": [4, 6]}}'
        ),
        CHUNKS,
    ),
    "separator twice": (
        in_place_of("chunk_key_encoding", '{"name": "v2", "configuration": {"separator": "/", "separator": "."}}'),
        "chunk_key_encoding.configuration.separator",
    ),
    "endian twice": (
        in_place_of("codecs", '[{"name": "bytes", "configuration": {"endian": "little", "endian": "big"}}]'),
        f"{FIRST}.endian",
    ),
    "codec name twice": (in_place_of("codecs", '[{"name": "bytes", "name": "bytes"}]'), "codecs[0].name"),
}


@pytest.mark.parametrize(("raw", "field"), TEXTS.values(), ids=TEXTS)
def test_text_that_is_refused(raw, field):
    with pytest.raises(MetadataError) as info:
        open_document(raw)
    assert info.value.field == field
    assert (field or "metadata") in str(info.value)
    assert len(str(info.value)) < 10_000


def test_of_many_keys_the_repeated_one_is_named():
    keys = ", ".join(f'"k{n}": 1' for n in range(50_000))
    with pytest.raises(MetadataError, match="k49999 occurs twice"):
        open_document("{" + keys + ', "k49999": 2}')


PLACES = [
    ("fill_value", "@"),
    ("chunk_grid", '{"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [@, 3]}}'),
    ("chunk_key_encoding", '{"name": "default", "configuration": {"separator": @}}'),
    ("codecs", '[{"name": "transpose", "configuration": {"order": @}}]'),
]


@pytest.mark.parametrize(("field", "form"), PLACES)
def test_nesting_near_the_limit_of_the_parser(field, form):
    # Where the parser only just succeeds, whatever handles the value must not run out of stack either.
    for depth in range(900, 1000):
        with pytest.raises(MetadataError):
            open_document(in_place_of(field, form.replace("@", "[" * depth + "]" * depth)))


def test_values_too_deep_to_be_shown():
    nested = []
    for _ in range(200_000):
        nested = [nested]
    with pytest.raises(MetadataError, match=r"shape must be an integer >= 0, found \[\[\["):
        as_integer(nested, "shape")
    while nested:  # taken apart step by step, because that too would recurse
        nested = nested.pop()


# -- nothing is allocated from numbers in a document ----------------------------------------------

LARGE = {
    "a run": {"shape": [HUGE], "chunk_grid": rectilinear([[1, HUGE]])},
    "a regular grid": {"shape": [2**63 - 1], "chunk_grid": regular(1)},
    "several axes": {"shape": [HUGE, HUGE, HUGE], "chunk_grid": rectilinear([[1, HUGE]], 1, [[2, HUGE // 2], 2])},
    "a large chunk": {"shape": [5], "chunk_grid": regular(2**40), "codecs": [BYTES, "crc32c"]},
    "an edge beyond the array": {"shape": [5], "chunk_grid": rectilinear([5, HUGE])},
}
TOO_LARGE = {
    "a type": ("fill_value", {"data_type": "r8000000000", "codecs": ["bytes"]}),
    "a run": (f"{SHAPES}[0]", {"shape": [5], "chunk_grid": rectilinear([[1, 2**63]])}),
    "a shape": (f"{SHAPES}[0]", {"shape": [HUGE], "chunk_grid": rectilinear([1])}),
    "levels": (f"{SECOND}.level", {"codecs": compressed("gzip", {"level": HUGE})}),
}


def peak_of(action):
    open_document(GOOD)  # imports are not counted
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("changes", LARGE.values(), ids=LARGE)
def test_numbers_do_not_become_memory(changes):
    raw = json.dumps(document(**changes))

    def use():
        array = open_document(raw)
        assert array.shape == tuple(changes["shape"])
        assert array.nchunks >= 1
        assert len(repr(array)) < 1000
        assert str(changes["shape"][0]) in array.info["Shape"]
        assert next(array.iter_chunks((slice(0, 1),) * array.ndim)).coords == (0,) * array.ndim

    assert peak_of(use) < 1 << 20


@pytest.mark.parametrize(("field", "changes"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_numbers_that_are_refused_do_not_become_memory(field, changes):
    raw = json.dumps(document(**changes))

    def use():
        with pytest.raises(MetadataError) as info:
            open_document(raw)
        assert info.value.field == field

    assert peak_of(use) < 1 << 20


@pytest.mark.parametrize("size", [HUGE, 2**63 - 1])
def test_a_chunk_of_more_bytes_than_can_be_addressed(size):
    try:
        array = open_document(document(shape=[5], chunk_grid=regular(size)))
    except MetadataError as error:
        assert error.field.startswith("chunk_grid")  # noqa: PT017
    else:
        assert array[...].tolist() == [7] * 5
