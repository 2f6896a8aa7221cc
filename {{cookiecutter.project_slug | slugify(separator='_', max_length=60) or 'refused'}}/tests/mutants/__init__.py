"""The product broken on purpose: every invariant has a test that fails without it."""
