"""Kafka to Spark to Kafka, exactly once.

The flow, in the order of the code:

    flow/source.py       Spark reads one Kafka topic, read_committed, one lane per partition
    flow/codec.py        values become columns; what cannot be decoded is marked, never dropped
    flow/transform.py    YOURS: each row gets its outputs
    flow/windows.py      YOURS, if it is needed: windows of event time; `flow/path.py` says when
    lanes/writer.py      fence, recall, skip, judge, write, report: one Kafka transaction per chunk of a lane
    observe/             metrics from the lane records, lag for other tools, and an audit that proves the claim

`flow/job.py` shows the whole of it on one page.
"""

__version__ = "0.1.0"
