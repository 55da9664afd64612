"""One file a kind of launch file: its text as a `Found` record; nothing of it is executed."""
