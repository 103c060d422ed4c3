"""Protobuf messages: converts a message's descriptor to Arrow's schema, and bytes to values, by `protobuf`.

The descriptor is a file that `protoc --descriptor_set_out` writes, so Spark's workers need no generated code.
Fields that were not set are null if the format distinguishes that, else their default. Names of
enumerations are text; `google.protobuf.Timestamp` is a timestamp; of a `oneof` the field that is set has a
value.

Called by `binary_values` and the sink's `value_encoder`, on Spark's workers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from drivetrain.connectors.kafka.confluent_header import without_header, without_index

_SIMPLE = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(), FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(), FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(), FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(), FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class ProtobufFormat:
    """The message `name` of a serialized set of file descriptors."""

    name: str
    descriptors: bytes
    confluent: bool = False

    def schema(self) -> pa.Schema:
        """The message's fields as columns; raises ValueError if it is not described, or contains itself."""
        return pa.schema([(field.name, _arrow(field, ())) for field in self._descriptor().fields])

    def decoder(self) -> Callable[[bytes], Mapping[str, Any]]:
        """A function from a message to its fields; it raises ValueError."""
        descriptor = self._descriptor()
        made = message_factory.GetMessageClass(descriptor)

        def decode(value: bytes) -> Mapping[str, Any]:
            message = made()
            try:
                message.ParseFromString(without_index(without_header(value)) if self.confluent else value)
            except DecodeError as error:
                raise ValueError(str(error)) from error
            return _fields(message)

        return decode

    def encoder(self) -> Callable[[Mapping[str, Any]], bytes]:
        """A function from the fields, as Arrow values, to a message; its ValueError has no values in it."""
        made = message_factory.GetMessageClass(self._descriptor())

        def encode(row: Mapping[str, Any]) -> bytes:
            message = made()
            try:
                _fill(message, row)
            except (TypeError, ValueError, KeyError) as error:
                raise ValueError(f"a field does not fit its type ({type(error).__name__})") from None
            return bytes(message.SerializeToString())

        return encode

    def _descriptor(self) -> Descriptor:
        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(self.descriptors)
            for file in files.file:
                pool.Add(file)  # protoc writes a file after those that it imports
            return pool.FindMessageTypeByName(self.name)
        except DecodeError as error:
            raise ValueError(f"this is not a set of descriptors: {error}") from error
        except (KeyError, TypeError) as error:
            raise ValueError(f"the message {self.name} is not described there: {error}") from error


def _arrow(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    kind = field.message_type
    if kind is None:
        binary = field.type == FieldDescriptor.TYPE_BYTES
        found = pa.binary() if binary else _SIMPLE[field.cpp_type]
    elif kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        return pa.map_(_arrow(key, inside), _arrow(value, inside))
    elif kind.full_name == _TIMESTAMP:
        found = pa.timestamp("us", "UTC")
    elif kind.full_name in inside:
        raise ValueError(f"the message {kind.full_name} holds itself, which has no counterpart")
    else:
        found = pa.struct([(f.name, _arrow(f, (*inside, kind.full_name))) for f in kind.fields])
    return pa.list_(found) if field.is_repeated else found


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return [(key, _one(item, of)) for key, item in value.items()]
    return [_one(item, field) for item in value] if field.is_repeated else _one(value, field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return _EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return _fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value


def _fill(message: Message, row: Mapping[str, Any]) -> None:
    """Set the fields that have a value; the opposite of `_fields`."""
    for name, value in row.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of = kind.fields_by_name["value"]
            for key, item in value:
                if of.message_type is None:
                    getattr(message, name)[key] = _plain(item, of)
                else:
                    _fill_one(getattr(message, name)[key], item)
        elif field.is_repeated:
            for item in value:
                if kind is None:
                    getattr(message, name).append(_plain(item, field))
                else:
                    _fill_one(getattr(message, name).add(), item)
        elif kind is not None:
            getattr(message, name).SetInParent()
            _fill_one(getattr(message, name), value)
        else:
            setattr(message, name, _plain(value, field))


def _fill_one(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        message.FromDatetime(value)
    else:
        _fill(message, value)


def _plain(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_name[value].number
    return int(value) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else value
