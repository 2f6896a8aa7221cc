"""The flow through Spark: source, codec, transform, and the job that ties them to the lanes."""
