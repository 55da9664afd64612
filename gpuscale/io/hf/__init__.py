"""Hugging Face `config.json` files to model specs: one small function per family."""

from gpuscale.io.hf.config import spec_from_config

__all__ = ["spec_from_config"]
