"""Lanes: one source partition, judged, written and remembered in one Kafka transaction."""
