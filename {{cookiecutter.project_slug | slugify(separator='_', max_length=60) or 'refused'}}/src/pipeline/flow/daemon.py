"""The parent of Spark's Python workers: it has imported all that they need before it forks the first one.

A worker that starts cold imports for about a second, and each has to: at the start of a job, and after every kill. No
Kafka client is made here; clients do not survive a fork, modules do. Used with local masters, where this project can
be imported before a task brings it along.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

from pipeline.flow.spared import spare_tasks

# What a task of the lane writer, or of the codec, imports on its first row.
MODULES = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "confluent_kafka.admin",
    "fastavro",
    "pipeline.flow.avro_values",
    "pipeline.flow.batch",
)


def main() -> None:
    """Import, then serve Spark until it closes the pipe."""
    for module in MODULES:
        import_module(module)
    spare_tasks()
    manager()


if __name__ == "__main__":
    main()
