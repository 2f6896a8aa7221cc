"""Everything that needs no cluster: pinned jars, an embedded Kafka, example events, the demo."""
