"""What a run's log says: facts, series, and the causes that would explain them."""
