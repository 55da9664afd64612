"""How far a kind of parallelism goes before its communication outlasts its arithmetic."""
