"""The dashboards as code: `python -m ops.grafana.build` writes `dashboards/*.json`."""
