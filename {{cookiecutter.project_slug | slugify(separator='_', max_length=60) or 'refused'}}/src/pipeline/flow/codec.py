"""How this job reads and writes values: the formats of the settings, and the schemas in `schemas/`.

Guarantee: no record disappears here, and no number is altered. A value that cannot be decoded as it stands, to the
last digit and the last byte, keeps its row; its error says why, so that the lane writer makes a dead letter of it.
Schemas are checked at start: they exist, the reader's can read the writer's, and output columns fit theirs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, lit

from pipeline.avro.compatible import mismatch
from pipeline.avro.decode import Reader
from pipeline.avro.framed import head
from pipeline.avro.limits import Limits
from pipeline.avro.node import BadSchema, tree
from pipeline.avro.registry import Away, Refused, registry
from pipeline.errors import BadSettings, RegistryAway, SafeStop
from pipeline.flow.avro_values import AvroInput, decode_avro
from pipeline.flow.json_values import check_json, decode_json
from pipeline.flow.source import KEY, SOURCE
from pipeline.flow.types import columns_of, load_schema, misfit, reader_of
from pipeline.lanes.encoded import OutputSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from pipeline.sections import Codec as CodecSettings
    from pipeline.settings import Settings

# Values that nobody reads: one column of bytes, null for a tombstone.
AS_IT_IS = {"type": "record", "name": "Record", "fields": [{"name": "value", "type": ["null", "bytes"]}]}


@dataclass(frozen=True)
class OutputFile:
    """The schema of an output topic: where it stands, its text, its columns."""

    path: str
    schema: str
    columns: StructType


@dataclass(frozen=True)
class Codec:
    """The formats of a job, with their schemas read and checked."""

    settings: CodecSettings
    reader: Reader
    writer: str
    outputs: Mapping[str, OutputFile] = field(default_factory=dict)

    @property
    def columns(self) -> StructType:
        """The columns that the user's function gets."""
        return columns_of(self.reader.node)

    @property
    def limits(self) -> Limits:
        """What one value may cost."""
        return Limits(self.settings.max_depth, self.settings.max_items, self.settings.max_bytes)

    @property
    def stages(self) -> int:
        """How many stages of the project's own stand between source and user's function in the plan."""
        return int(self.settings.input == "avro")

    def decode(self, records: DataFrame) -> DataFrame:
        """Replace the column `value` by the schema's columns, and note in `_source` why a value was not sound."""
        if self.settings.input == "bytes":
            return records.select(KEY, col(SOURCE).withField("error", lit(None).cast("string")).alias(SOURCE), "value")
        if self.settings.input == "json":
            return decode_json(records, self.reader, self.limits)
        framed = self.settings.input_framing == "confluent"
        asked = self._registry if framed else ("", 0.0, "")
        given = AvroInput(json.dumps(self.reader.schema), self.writer, self.limits, *asked)
        return decode_avro(records, self.reader, given)

    @property
    def _registry(self) -> tuple[str, float, str]:
        """Where the registry is, how long it is waited for, and where its login is kept."""
        given = self.settings
        return given.registry_url, given.registry_seconds, given.registry_user_info_file

    def output_schemas(self) -> dict[str, OutputSchema]:
        """What the lane writer encodes by; of framed values also the ids, which the registry must know."""
        if self.settings.output_framing == "plain":
            return {topic: OutputSchema(file.schema) for topic, file in self.outputs.items()}
        found = {}
        for topic, file in self.outputs.items():
            number = self._registered(topic, file, "id_of")
            found[topic] = OutputSchema(file.schema, head(number))
        return found

    def register(self, say: Callable[[str], None]) -> None:
        """Register the schemas of framed outputs; nothing else in this project does."""
        if self.settings.output_framing == "confluent":
            for topic, file in self.outputs.items():
                say(f"schema {file.path}: registered for topic {topic} as {self._registered(topic, file, 'register')}")

    def _registered(self, topic: str, file: OutputFile, question: str) -> int:
        known = registry(*self._registry)
        try:
            return int(getattr(known, question)(f"{topic}-value", file.schema))
        except Away as error:
            raise RegistryAway(str(error)) from None
        except Refused as error:
            msg = (
                f"topic {topic}, {file.path}: {error}: run `pipeline provision`, which registers it, or mend the schema"
            )
            raise SafeStop(msg) from None

    def check_output(self, topic: str, made: DataType) -> None:
        """The columns of an output fit the schema of its topic."""
        file = self.outputs.get(topic)
        if file is None:
            msg = (
                f"transform: a record for topic {topic!r}, which is not in output.topics; add it there, with its schema"
            )
            raise SafeStop(msg)
        why = misfit(made, file.columns)
        if why is not None:
            msg = f"transform: the output to topic {topic} does not fit {file.path}: {why}"
            raise SafeStop(msg)


def codec_of(settings: Settings) -> Codec:
    """Read and check all schemas that the settings name."""
    given = settings.codec
    # What stands in the topic of late events are source records, as they came.
    topics = [topic for topic in settings.output.topics if topic != settings.late_topic]
    outputs = {topic: _output(given, topic) for topic in topics} if given.output == "avro" else {}
    if given.input == "bytes":
        return Codec(given, Reader.of(AS_IT_IS), "", outputs)
    where = f"codec.schema_file = {given.schema_file!r}"
    reader = reader_of(load_schema(Path(given.schema_file), where), where)
    if given.input == "json":
        check_json(reader, where)
    return Codec(given, reader, _writer(given, reader), outputs)


def _writer(given: CodecSettings, reader: Reader) -> str:
    if not given.writer_schema_file:
        return json.dumps(reader.schema)
    where = f"codec.writer_schema_file = {given.writer_schema_file!r}"
    schema = load_schema(Path(given.writer_schema_file), where)
    try:
        why = mismatch(tree(schema), reader.node)
    except BadSchema as error:
        msg = f"{where}: {error}"
        raise BadSettings(msg) from None
    if why is not None:
        msg = f"{where}: what it writes cannot be read by {given.schema_file}: {why}"
        raise BadSettings(msg)
    return json.dumps(schema)


def _output(given: CodecSettings, topic: str) -> OutputFile:
    path = given.output_schema_files.replace("{topic}", topic)
    where = f"codec.output_schema_files, topic {topic}: {path!r}"
    schema = load_schema(Path(path), where)
    return OutputFile(path, json.dumps(schema), columns_of(reader_of(schema, where).node))
