"""The `lumenfarm` command."""
