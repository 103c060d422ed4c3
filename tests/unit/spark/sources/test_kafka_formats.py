"""Avro and Protobuf messages as columns, without Spark: every value comes back, poison has a reason."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, type_pb2
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.connectors.kafka.avro import AvroFormat
from drivetrain.connectors.kafka.confluent_header import without_header, without_index
from drivetrain.connectors.kafka.protobuf_values import ProtobufFormat

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "d", "type": "double"}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "long"},
    {"name": "s", "type": ["null", "string"]},
    {"name": "many", "type": {"type": "array", "items": "int"}},
    {"name": "by_name", "type": {"type": "map", "values": INNER}},
    {"name": "again", "type": ["null", "Inner"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]
SCHEMA = {"type": "record", "name": "Outer", "fields": FIELDS}
ROWS = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(),
        "many": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "by_name": st.dictionaries(
            st.text(max_size=3), st.builds(lambda d: {"d": d}, st.floats(0, 1)), max_size=2
        ),
        "again": st.none() | st.builds(lambda d: {"d": d}, st.floats(0, 1)),
        "at": st.integers(0, 2**40).map(
            lambda ms: dt.datetime.fromtimestamp(ms / 1000, dt.UTC).replace(microsecond=0)
        ),
        "price": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2)),
    }
)


def avro(row: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(SCHEMA), row)
    return written.getvalue()


@given(ROWS)
def test_what_is_written_as_avro_is_what_any_reader_reads(row: dict[str, Any]) -> None:
    made = AvroFormat(json.dumps(SCHEMA))
    given = pa.array([{**row, "by_name": list(row["by_name"].items())}], pa.struct(list(made.schema())))
    assert made.encoder()(given.to_pylist()[0]) == avro(row)


def test_what_does_not_fit_avro_names_the_field_and_no_value() -> None:
    fields = [
        {"name": "n", "type": "long"},
        {"name": "of", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
    ]
    encode = AvroFormat(json.dumps({"type": "record", "name": "R", "fields": fields})).encoder()
    with pytest.raises(ValueError, match="null in n, which the schema does not allow"):
        encode({"n": None, "of": "A"})
    with pytest.raises(ValueError, match="does not fit its type") as refused:
        encode({"n": 1, "of": "hush"})
    assert "hush" not in str(refused.value)


@given(ROWS)
def test_an_avro_message_comes_back_as_arrow_takes_it(row: dict[str, Any]) -> None:
    made = AvroFormat(json.dumps(SCHEMA))
    told = pa.array([made.decoder()(avro(row))], pa.struct(list(made.schema()))).to_pylist()[0]
    assert {**told, "by_name": dict(told["by_name"])} == row


@given(ROWS, st.integers(1, 4))
def test_an_avro_message_that_is_cut_or_has_more_has_a_reason(row: dict[str, Any], n: int) -> None:
    decode = AvroFormat(json.dumps(SCHEMA)).decoder()
    for poison in (avro(row)[:-n], avro(row) + b"x" * n):
        with pytest.raises(ValueError, match=r"."):
            decode(poison)


@pytest.mark.parametrize(
    "schema",
    [
        '"long"',
        '{"type":"record","name":"R","fields":[{"name":"u","type":["int","string"]}]}',
        '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}',
        '{"type":"record","name":"R","fields":[{"name":"t","type":"nowhere"}]}',
        "no JSON",
    ],
)
def test_an_avro_schema_without_a_counterpart_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AvroFormat(schema).schema()


def described(*modules: Any) -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    for module in modules:
        module.DESCRIPTOR.CopyToProto(found.file.add())
    return found.SerializeToString()


def test_a_protobuf_message_has_nulls_names_of_enumerations_lists_and_messages() -> None:
    from google.protobuf import any_pb2, source_context_pb2

    made = ProtobufFormat("google.protobuf.Field", described(any_pb2, source_context_pb2, type_pb2))
    field = type_pb2.Field(kind=type_pb2.Field.TYPE_BOOL, name="f", number=3)
    field.options.add(name="o")
    told = made.decoder()(field.SerializeToString())
    assert (told["kind"], told["name"], told["number"], told["packed"]) == ("TYPE_BOOL", "f", 3, False)
    assert told["options"] == [{"name": "o", "value": None}]
    assert pa.array([told], pa.struct(list(made.schema()))).to_pylist() == [told]


@given(st.integers(0, 2**33), st.integers(0, 999_999_999))
def test_a_protobuf_message_comes_back(seconds: int, nanos: int) -> None:
    made = ProtobufFormat("google.protobuf.Timestamp", described(timestamp_pb2))
    value = timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    assert made.decoder()(value) == {"seconds": seconds, "nanos": nanos}


def rich() -> bytes:
    """Descriptors of a message `t.Rich` that has fields of every sort."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="rich.proto", package="t", syntax="proto3", dependency=[files.file[0].name])
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "SOME")):
        kind.value.add(name=name, number=number)
    inner, made = file.message_type.add(name="Inner"), file.message_type.add(name="Rich")
    of = descriptor_pb2.FieldDescriptorProto
    one, many = of.LABEL_OPTIONAL, of.LABEL_REPEATED
    inner.field.add(name="d", number=1, type=of.TYPE_DOUBLE, label=one)
    entry = made.nested_type.add(name="ByNameEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=of.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=of.TYPE_MESSAGE, label=one, type_name=".t.Inner")
    for number, (name, type, label, type_name) in enumerate(
        [
            ("n", of.TYPE_INT64, one, None),
            ("big", of.TYPE_UINT64, one, None),
            ("raw", of.TYPE_BYTES, one, None),
            ("numbers", of.TYPE_INT32, many, None),
            ("kind", of.TYPE_ENUM, one, ".t.Kind"),
            ("at", of.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
            ("inner", of.TYPE_MESSAGE, one, ".t.Inner"),
            ("inners", of.TYPE_MESSAGE, many, ".t.Inner"),
            ("by_name", of.TYPE_MESSAGE, many, ".t.Rich.ByNameEntry"),
        ],
        1,
    ):
        made.field.add(name=name, number=number, type=type, label=label, type_name=type_name)
    return files.SerializeToString()


def _instant(us: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)


INNERS = st.builds(lambda d: {"d": d}, st.floats(0, 1))


@given(
    st.fixed_dictionaries(
        {
            "n": st.integers(-(2**63), 2**63 - 1),
            "big": st.integers(0, 2**64 - 1).map(decimal.Decimal),
            "raw": st.binary(max_size=4),
            "numbers": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
            "kind": st.sampled_from(["NONE", "SOME"]),
            "at": st.none() | st.integers(0, 2**50).map(_instant),
            "inner": st.none() | INNERS,
            "inners": st.lists(INNERS, max_size=2),
            "by_name": st.dictionaries(st.text(max_size=3), INNERS, max_size=2).map(
                lambda d: list(d.items())
            ),
        }
    )
)
def test_what_is_written_as_protobuf_is_read_again(row: dict[str, Any]) -> None:
    made = ProtobufFormat("t.Rich", rich())
    given = pa.array([row], pa.struct(list(made.schema()))).to_pylist()[0]
    told = made.decoder()(made.encoder()(given))
    assert {**told, "by_name": dict(told["by_name"])} == {**row, "by_name": dict(row["by_name"])}


def test_what_does_not_fit_protobuf_is_refused_without_its_value() -> None:
    encode = ProtobufFormat("t.Rich", rich()).encoder()
    with pytest.raises(ValueError, match="does not fit its type") as refused:
        encode({"kind": "hush"})
    assert "hush" not in str(refused.value)


def test_protobuf_that_does_not_parse_is_not_described_or_holds_itself_has_a_reason() -> None:
    made = ProtobufFormat("google.protobuf.Timestamp", described(timestamp_pb2))
    with pytest.raises(ValueError, match=r"."):
        made.decoder()(b"\xff\xff")
    with pytest.raises(ValueError, match="not described"):
        ProtobufFormat("google.protobuf.Elsewhere", described(timestamp_pb2)).schema()
    with pytest.raises(ValueError, match="holds itself"):
        ProtobufFormat("google.protobuf.Struct", described(struct_pb2)).schema()
    with pytest.raises(ValueError, match="not a set of descriptors"):
        ProtobufFormat("a.B", b"\xff").schema()


def test_confluents_header_is_taken_off_or_missed() -> None:
    assert without_header(b"\x00\x00\x00\x00\x01rest") == b"rest"
    assert without_index(b"\x00rest") == b"rest"
    assert without_index(b"\x04\x02\x00rest") == b"rest"
    for poison in (b"", b"\x01\x00\x00\x00\x01rest"):
        with pytest.raises(ValueError, match="header"):
            without_header(poison)
    with pytest.raises(ValueError, match="no end"):
        without_index(b"\x80")
