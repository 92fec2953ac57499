"""The tables of docs/operations.md."""
