"""What an answer never repeats: secrets by their names, and values of files that were not given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_SECRET = re.compile(
    r"secret|passw|passphrase|credential|(api|access|private|auth|ssh|signing|wandb)[_-]?key"
    r"|(?<![a-z])token$|(gh|github|gitlab)_?pat$|webhook|bearer",
    re.IGNORECASE,
)
_OF_TEXT = r"(pad|eos|bos|unk|sep|cls|mask|image|video|audio|per|stop)[_-]?token$"
_NAMED = re.compile(r"(?<![\w.-])([\w.-]{2,80})(?=[\"']?(?:\s*[:=]\s*|[ \t]+(?!-))[\"']?())")
_VALUE = re.compile(r"[^\s\"',;]+")
_IN_ADDRESS = re.compile(r"://[^\s/:@]{0,80}:([^\s/@]{1,200})@")
_WORD = re.compile(r"[^\s\"'`,;:=(){}\[\]<>|&$]+")
_PLAIN = re.compile(r"[\d.eE+-]+|[A-Za-z]?[a-z]{1,9}|GPUs")
"""Numbers, and words that stand in any sentence."""
SHORTEST = 4
"""Characters of a value that is hidden; shorter ones are numbers and units."""
HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Whether a variable or key holds a secret, by its name.

    >>> [is_secret(n) for n in ("AWS_SECRET", "api_key", "HF_TOKEN", "pad_token", "max_tokens")]
    [True, True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not re.search(_OF_TEXT, name, re.IGNORECASE)


class Hidden:
    """Values that an answer about some files does not repeat."""

    def __init__(
        self, files: Mapping[str, str], given: Collection[str], known: Collection[str] = ()
    ) -> None:
        found = {value for text in files.values() for value in _secrets(text)}
        kept = (value for value in found if len(value) >= SHORTEST and "$" not in value)
        self.secrets = sorted(kept, key=len, reverse=True)
        seen = {w for name in given for w in _WORD.findall(files.get(name, ""))} | set(known)
        self.values: set[str] = set()
        for name, text in files.items():
            if name not in given:
                self.values |= {word for word in _values(text) if word not in seen}

    def masked(self, text: str) -> str:
        """Text with every hidden value in it covered."""
        for value in self.secrets:
            text = text.replace(value, HIDDEN)
        if self.values:
            text = _WORD.sub(lambda m: HIDDEN if self._holds(m[0]) else m[0], text)
        return text

    def _holds(self, word: str) -> bool:
        if word in self.values or len(word) > 400:
            return True
        n = len(word)
        parts = (word[i:j] for i in range(n) for j in range(i + SHORTEST, n + 1))
        return any(part in self.values and not part.islower() for part in parts)

    def within(self, value: Any) -> Any:
        """Cover the texts of a nested value."""
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.within, value))
        if isinstance(value, dict):
            return {self.within(k): self.within(v) for k, v in value.items()}
        return value


def _secrets(text: str) -> Iterator[str]:
    """Values of names that look secret, and passwords in addresses."""
    end = 0
    for match in _NAMED.finditer(text):
        if match.start() >= end and is_secret(match[1]):
            value = _VALUE.match(text, match.end(2))
            end = value.end() if value else match.end()
            yield value[0] if value else ""
    yield from _IN_ADDRESS.findall(text)


def _values(text: str) -> set[str]:
    """Words of a file that are no names of options, keys or variables, and no numbers."""
    found = set()
    for match in _WORD.finditer(text):
        word, before, after = match[0], text[match.start() - 1 : match.start()], match.end()
        said = text[after : after + 2].lstrip("\"'")[:1] in (":", "=")
        named = said or word.startswith("-") or before in ("$", "{")
        if len(word) >= SHORTEST and not named and not _PLAIN.fullmatch(word):
            found.add(word)
    return found
