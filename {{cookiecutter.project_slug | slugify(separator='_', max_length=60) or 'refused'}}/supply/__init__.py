"""What this project is made of: lock files with hashes, and a bill of materials."""
