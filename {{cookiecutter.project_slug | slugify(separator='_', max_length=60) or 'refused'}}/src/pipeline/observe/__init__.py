"""What can be seen from outside: metrics, lag, and the audit that proves the claim."""
