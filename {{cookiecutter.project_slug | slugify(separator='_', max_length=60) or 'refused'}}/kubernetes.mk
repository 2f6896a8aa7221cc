# The manifests for Kubernetes: part of the Makefile.
.PHONY: manifests

manifests: $(READY) ## build every overlay with kustomize, and hold it against the schemas with kubeconform; needs Go or both
	ops/kubernetes/install.sh $(VENV)/bin
	$(RUN) -m pytest tests/unit/test_manifests.py $(ARGS)
