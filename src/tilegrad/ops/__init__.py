"""The operations, one family per file. Each op stands in one place with its body and all its rules."""
