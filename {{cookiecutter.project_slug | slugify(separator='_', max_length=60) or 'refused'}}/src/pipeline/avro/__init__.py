"""Avro at the edges: schemas, a scan that bounds hostile bytes, and whole batches through fastavro.

Guarantee: no bytes can crash, hang or bloat a worker here; what is decoded is exact, and what is not says why.
Nothing in this package needs Spark or Kafka.
"""
