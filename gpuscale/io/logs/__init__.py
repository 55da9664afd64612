"""Logs of training, serving and network programs, read as a stream."""
