"""One matrix product or elementwise operation on one GPU."""
