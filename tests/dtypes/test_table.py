"""Data types beyond the core: documents, numpy's types, and what is refused (spec 4.2, 4.3)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import zellige
from data_types import POINT, SMALL, STRING, TABLE, named, pairs_of, struct_of
from zellige.dtypes import from_json, from_numpy, parse_dtype
from zellige.dtypes.fill import fill_bits
from zellige.errors import MetadataError, UnknownDataTypeError

each_type = pytest.mark.parametrize(
    ("document", "numpy", "endian", "default"), TABLE, ids=[str(row[1])[:40] for row in TABLE]
)


# -- the table ------------------------------------------------------------------------------------


@each_type
def test_table(document, numpy, endian, default):
    dtype = from_json(document)
    assert dtype.numpy == numpy
    assert dtype.endian is endian
    assert dtype.to_json() == document
    assert from_json(json.loads(json.dumps(dtype.to_json()))) == dtype
    assert hash(from_json(document)) == hash(dtype)
    fill = dtype.cast_fill(None)
    assert fill.shape == ()
    assert fill.dtype == numpy
    assert not fill.flags.writeable
    assert json.dumps(dtype.write_fill(fill)) == json.dumps(default)
    assert fill_bits(dtype.read_fill(default)) == fill_bits(fill)
    assert dtype.zero.dtype == numpy


@each_type
def test_what_users_give_for_a_type(document, numpy, endian, default):
    dtype = from_json(document)
    forms = [document, dtype, {"name": document} if isinstance(document, str) else document]
    if dtype.name not in ("raw_bytes", "bytes"):  # numpy's own names are others
        forms += [numpy, *([numpy.newbyteorder(">")] if numpy.kind in "MmU" else [])]
    for form in forms:
        assert parse_dtype(form) == dtype


@pytest.mark.parametrize(
    ("given", "name", "numpy"),
    [
        (str, "string", STRING),
        ("str", "string", STRING),
        ("T", "string", STRING),
        (np.dtypes.StringDType(na_object=None), "string", STRING),
        (bytes, "bytes", np.dtype(object)),
        ("variable_length_bytes", "bytes", np.dtype(object)),
        ("complex_float32", "complex64", np.dtype("c8")),
        ("complex_float64", "complex128", np.dtype("c16")),
        (ml_dtypes.bfloat16, "bfloat16", np.dtype(ml_dtypes.bfloat16)),
        ("V3", "r24", np.dtype("V3")),
        ("U2", "fixed_length_utf32", np.dtype("U2")),
        ("datetime64[ms]", "numpy.datetime64", np.dtype("M8[ms]")),
        ("i4,f8", "struct", np.dtype([("f0", "i4"), ("f1", "f8")])),
        ([("a", ">i2"), ("b", "S2")], "struct", np.dtype([("a", "i2"), ("b", "S2")])),
        ({"names": ["a"], "formats": ["i2"]}, "struct", np.dtype([("a", "i2")])),
        (np.dtype([("a", "i1"), ("b", "f8")], align=True), "struct", np.dtype([("a", "i1"), ("b", "f8")])),
        (named("numpy.datetime64", unit="μs", scale_factor=1), "numpy.datetime64", np.dtype("M8[us]")),
        (named("numpy.datetime64", unit="\u00b5s", scale_factor=1), "numpy.datetime64", np.dtype("M8[us]")),
        (pairs_of(x="int16", y="uint8", z="float32"), "struct", np.dtype([("x", "i2"), ("y", "u1"), ("z", "f4")])),
    ],
    ids=str,
)
def test_other_spellings(given, name, numpy):
    dtype = parse_dtype(given)
    assert (dtype.name, dtype.numpy) == (name, numpy)
    assert from_json(dtype.to_json()) == dtype


def test_older_names_are_written_as_newer_ones():
    assert from_json("variable_length_bytes").to_json() == "bytes"
    assert from_json("complex_float32").to_json() == "complex64"
    assert from_json(pairs_of(x="int16", y="uint8", z="float32")).to_json() == POINT
    assert from_json(named("numpy.datetime64", unit="μs", scale_factor=2)).to_json() == named(
        "numpy.datetime64", unit="us", scale_factor=2
    )
    assert from_json(named("raw_bytes", length_bytes=2)).to_json() == named("raw_bytes", length_bytes=2)


@pytest.mark.parametrize("value", [object, "O", "object", np.dtype("O")])
def test_objects_are_refused_with_a_remedy(value):
    with pytest.raises(UnknownDataTypeError, match="dtype='string' or dtype='bytes'"):
        parse_dtype(value)


@pytest.mark.parametrize("value", ["U", "S", np.str_, np.bytes_])
def test_text_without_a_length_is_refused_with_a_remedy(value):
    with pytest.raises(UnknownDataTypeError, match="has no length; say dtype="):
        parse_dtype(value)


@pytest.mark.parametrize("part", [name for name, *_ in SMALL])
def test_complex_numbers_that_numpy_cannot_hold(part):
    with pytest.raises(UnknownDataTypeError, match=f"numpy cannot hold complex numbers of {part}"):
        from_json(f"complex_{part}")


FIELDS = "data_type.configuration.fields"
REFUSED_TYPES = [
    ({"name": "string", "configuration": {"length": 3}}, "data_type.configuration"),
    (named("bfloat16", bits=16), "data_type.configuration"),
    ("fixed_length_utf32", "data_type.configuration.length_bytes"),
    (named("fixed_length_utf32", length_bytes=0), "data_type.configuration.length_bytes"),
    (named("fixed_length_utf32", length_bytes=6), "data_type.configuration.length_bytes"),
    (named("fixed_length_utf32", length_bytes=2**31), "data_type.configuration.length_bytes"),
    (named("fixed_length_utf32", length_bytes=True), "data_type.configuration.length_bytes"),
    (named("fixed_length_utf32", length_bytes=8, order="C"), "data_type.configuration.order"),
    (named("null_terminated_bytes", length_bytes=0), "data_type.configuration.length_bytes"),
    (named("raw_bytes", length_bytes=8.0), "data_type.configuration.length_bytes"),
    ("numpy.datetime64", "data_type.configuration.unit"),
    (named("numpy.datetime64", unit="s"), "data_type.configuration.scale_factor"),
    (named("numpy.datetime64", unit="s", scale_factor=0), "data_type.configuration.scale_factor"),
    (named("numpy.datetime64", unit="s", scale_factor=2**31), "data_type.configuration.scale_factor"),
    (named("numpy.datetime64", unit="s", scale_factor=1.0), "data_type.configuration.scale_factor"),
    (named("numpy.datetime64", unit="B", scale_factor=1), "data_type.configuration.unit"),
    (named("numpy.datetime64", unit="", scale_factor=1), "data_type.configuration.unit"),
    (named("numpy.datetime64", unit=None, scale_factor=1), "data_type.configuration.unit"),
    (named("numpy.timedelta64", unit="s", scale_factor=1, zone="UTC"), "data_type.configuration.zone"),
    ("struct", FIELDS),
    (named("struct", fields=[]), FIELDS),
    (named("struct", fields={"a": "int8"}), FIELDS),
    (named("struct", fields=[["a", "int8"]]), f"{FIELDS}[0]"),
    (named("struct", fields=[{"name": "a"}]), f"{FIELDS}[0]"),
    (named("struct", fields=[{"name": "a", "data_type": "int8", "offset": 0}]), f"{FIELDS}[0]"),
    (named("struct", fields=[{"name": "", "data_type": "int8"}]), f"{FIELDS}[0]"),
    (named("struct", fields=[{"name": 1, "data_type": "int8"}]), f"{FIELDS}[0]"),
    (named("struct", fields=2 * [{"name": "a", "data_type": "int8"}]), f"{FIELDS}[1]"),
    (struct_of(a="int8", b="string"), f"{FIELDS}[1].data_type"),
    (struct_of(a="bytes"), f"{FIELDS}[0].data_type"),
    (struct_of(a="int15"), f"{FIELDS}[0].data_type"),
    (struct_of(a="int8", b=named("raw_bytes")), f"{FIELDS}[1].data_type.configuration.length_bytes"),
    (struct_of(a=struct_of(b="string")), f"{FIELDS}[0].{FIELDS}[0].data_type"),
    (struct_of(a="r8000000000", b="r16000000000"), FIELDS),
    (named("structured", fields=[{"name": "a", "data_type": "int8"}]), f"{FIELDS}[0]"),
    (named("structured", fields=[["a", "int8", 1]]), f"{FIELDS}[0]"),
    (named("structured", fields=[["a", "int8"], ["a", "int8"]]), f"{FIELDS}[1]"),
    ({"name": "struct", "must_understand": False, "configuration": {}}, "data_type.must_understand"),
]


@pytest.mark.parametrize(("document", "field"), REFUSED_TYPES, ids=[str(row[0])[:60] for row in REFUSED_TYPES])
def test_refused_in_documents(document, field):
    with pytest.raises(MetadataError) as info:
        from_json(document)
    assert info.value.field == field


def test_structs_nested_without_end_are_refused():
    document = "int8"
    for _ in range(2000):
        document = struct_of(a=document)
    with pytest.raises(MetadataError, match="nested too deeply"):
        from_json(document)


@pytest.mark.parametrize("name", ["struct", "structured", "string", "numpy.datetime64"])
def test_errors_show_no_more_than_can_be_read(name):
    deep = []
    for _ in range(5000):
        deep = [deep]
    for configuration in ({"fields": deep}, {"fields": {"a": deep}}, {"unit": deep, "scale_factor": deep}):
        with pytest.raises(MetadataError) as info:
            from_json(named(name, **configuration))
        assert len(str(info.value)) < 400
    with pytest.raises(MetadataError):
        from_json("int8").read_fill(deep)


def test_many_fields_are_read_at_once():
    fields = [{"name": f"field {k}", "data_type": "int8"} for k in range(20_000)]
    assert from_json(named("struct", fields=fields)).numpy.itemsize == 20_000


@pytest.mark.parametrize("dtype", [[("a", "O")], [("a", "i4", (2,))], [("a", "g")], [("a", "U0")]])
def test_fields_that_zarr_does_not_have(dtype):
    with pytest.raises(UnknownDataTypeError):
        from_numpy(np.dtype(dtype))


def test_ml_dtypes_is_imported_on_first_use():
    code = (
        "import sys, zellige\n"
        "zellige.zeros(3, dtype='string'); zellige.zeros(3, dtype='i4,M8[s]')\n"
        "assert 'ml_dtypes' not in sys.modules\n"
        "sys.modules['ml_dtypes'] = None\n"
        "try: zellige.zeros(3, dtype='bfloat16')\n"
        "except ImportError as error: print(error)\n"
    )
    path = str(Path(zellige.__file__).parents[1])
    found = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert "pip install 'zellige[ml]'" in found.stdout, found.stderr
