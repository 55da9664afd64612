"""Grammar of bash: a script as a tree of commands, whose words stay as they are written.

After the POSIX shell command language (XCU 2.10) with what bash adds: `[[`, `((`, arrays,
here-strings, `for ((`. What does not parse is passed over, so that any text has a tree.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from gpuscale.errors import GpuscaleError
from gpuscale.launch.read.bash import tree

_REDIRECT = re.compile(r"(\d*)(<<<|<<-?|<>|>>|>&|<&|&>>?|>\||<|>)")
_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n|;&$]*>")
_TOKEN = re.compile(r"[^\s;&|()<>]+")
_FUNCTION = re.compile(
    r"(?:function[ \t]+([\w.:-]+)[ \t]*(?:\([ \t]*\))?|([\w.:-]+)[ \t]*\([ \t]*\))\s*(?=[{(]|$)"
)
_CLOSERS = frozenset(("then", "do", "done", "fi", "elif", "else", "esac", "}"))
DEEPEST = 60


def end_of(text: str, start: int) -> int:
    """Place after the bracket or quote that closes the one at `start`.

    >>> end_of('"a $(b ")") c" d', 0)
    14
    """
    closers = {"(": ")", "{": "}", '"': '"', "`": "`", "[": "]"}
    stack, i = [closers[text[start]]], start + 1
    while i < len(text):
        c, inside = text[i], stack[-1]
        if c == "\\":
            i += 1
        elif c == inside:
            stack.pop()
            if not stack:
                return i + 1
        elif inside == "`":
            pass
        elif c == "$" and text[i + 1 : i + 2] in ("(", "{"):
            stack.append(closers[text[i + 1]])
            i += 1
        elif c == "`":
            stack.append("`")
        elif inside != '"':
            if c == '"' or (c == "(" and inside == ")"):
                stack.append(closers[c])
            elif c == "'":
                i = text.find("'", i + 1)
                if i < 0:
                    return len(text)
            elif c == "#" and inside == ")" and text[i - 1].isspace():
                i = text.find("\n", i)
                if i < 0:
                    return len(text)
        i += 1
    return len(text)


class Parser:
    """Reads a text once, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.waiting: list[tuple[tree.Redirect, str]] = []  # here-documents whose text comes

    def words(self) -> list[str]:
        """Read all as words, as between the brackets of an array."""
        found = []
        while self.at < len(self.text):
            self._blank()
            if self.at < len(self.text) and self.text[self.at] == "\n":
                self.at += 1
            elif word := self._word():
                found.append(word)
            else:
                self.at += 1
        return found

    def block(self, until: Collection[str] = ()) -> tree.Block:
        """Commands up to a word of `until`, which is not read."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise GpuscaleError(f"a script of commands nested more than {DEEPEST} deep")
        nodes: list[tree.Node] = []
        while True:
            self._separators(until)
            if self.at >= len(self.text) or self._peek() in until:
                break
            before = self.at
            nodes.append(self._chain())
            if self.at == before:
                self.at += 1
        self.depth -= 1
        return tree.Block(nodes)

    def _blank(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#" and (self.at == 0 or text[self.at - 1] in " \t\r\n;&|()"):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return

    def _separators(self, until: Collection[str] = ()) -> None:
        while self.at < len(self.text):
            self._blank()
            if self.text.startswith(";;", self.at) and ";;" in until:
                return
            c = self.text[self.at : self.at + 1]
            if c == "\n":
                self._newline()
            elif c and c in ";&" and not self.text.startswith("&>", self.at):
                self.at += 1
            else:
                return

    def _newline(self) -> None:
        """Pass the end of a line, and take out the here-documents that begin after it."""
        self.at += 1
        for redirect, ends in self.waiting:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if line.strip() == ends:
                    break
                lines.append(line.lstrip("\t") if redirect.sign == "<<-" else line)
            redirect.body = "".join(line + "\n" for line in lines)
        self.waiting = []

    def _peek(self) -> str:
        """Word that comes next, or the sign `)` or `;;`."""
        if self.text.startswith(";;", self.at):
            return ";;"
        if self.text.startswith(")", self.at):
            return ")"
        match = _TOKEN.match(self.text, self.at)
        return match[0] if match else ""

    def _take(self, word: str) -> bool:
        """Pass a word if it comes next, after separators."""
        self._separators((";;",))
        if self._peek() != word:
            return False
        self.at += len(word)
        return True

    def _chain(self) -> tree.Node:
        first = self._pipeline()
        rest: list[tuple[str, tree.Node]] = []
        while True:
            self._blank()
            sign = self.text[self.at : self.at + 2]
            if sign not in ("&&", "||"):
                return tree.Chain(first, rest) if rest else first
            self.at += 2
            self._lines()
            rest.append((sign, self._pipeline()))

    def _lines(self) -> None:
        """Pass ends of lines, after a sign that joins."""
        self._blank()
        while self.at < len(self.text) and self.text[self.at] == "\n":
            self._newline()
            self._blank()

    def _pipeline(self) -> tree.Node:
        self._blank()
        negated = False
        while self._peek() in ("!", "time"):
            negated ^= self._peek() == "!"
            self.at += len(self._peek())
            self._blank()
        parts = [self._command()]
        while True:
            self._blank()
            if self.text[self.at : self.at + 1] != "|" or self.text.startswith("||", self.at):
                return tree.Pipeline(parts, negated) if len(parts) > 1 or negated else parts[0]
            self.at += 2 if self.text.startswith("|&", self.at) else 1
            self._lines()
            parts.append(self._command())

    def _command(self) -> tree.Node:
        text = self.text
        if match := _FUNCTION.match(text, self.at):
            if (match[1] or match[2]) not in _CLOSERS:
                self.at = match.end()
                return tree.Function(match[1] or match[2], self._command())
        if text.startswith("((", self.at):
            end = end_of(text, self.at)
            if text[end - 2 : end] == "))":
                inner = text[self.at + 2 : end - 2]
                self.at = end
                return tree.Sum(inner)
        if text.startswith("(", self.at):
            self.at += 1
            return self._group(")", apart=True)
        word = self._peek()
        readers = {
            "{": lambda: self._group("}"),
            "if": self._if,
            "for": self._for,
            "select": self._for,
            "while": lambda: self._while(until=False),
            "until": lambda: self._while(until=True),
            "case": self._case,
            "[[": self._test,
        }
        if word in readers:
            self.at += len(word)
            return self._redirected(readers[word]())
        if word in _CLOSERS:
            self.at += len(word)
            return tree.Block([])
        return self._simple()

    def _group(self, closer: str, apart: bool = False) -> tree.Node:
        body = self.block((closer,))
        self._take(closer)
        body.apart = apart
        return self._redirected(body)

    def _redirected(self, node: tree.Node) -> tree.Node:
        """Put the redirections after a compound command on it."""
        found = []
        self._blank()
        while (one := self._redirect()) is not None:
            found.append(one)
            self._blank()
        return tree.Block([node], redirects=found) if found else node

    def _redirect(self) -> tree.Redirect | None:
        match = _REDIRECT.match(self.text, self.at)
        if not match or _PLACEHOLDER.match(self.text, self.at):
            return None
        if match[2] in "<>" and self.text.startswith("(", match.end()):
            return None
        self.at = match.end()
        self._blank()
        raw = self._word()
        one = tree.Redirect(match[2], raw, number=match[1])
        if match[2] in ("<<", "<<-"):
            one.quoted = any(c in raw for c in "'\"\\")
            self.waiting.append((one, raw.strip("'\"\\")))
        return one

    def _simple(self) -> tree.Node:
        words: list[str] = []
        redirects: list[tree.Redirect] = []
        while self.at < len(self.text):
            self._blank()
            if (one := self._redirect()) is not None:
                redirects.append(one)
            elif word := self._word():
                words.append(word)
            else:
                break
        return tree.Simple(words, redirects)

    def _word(self) -> str:
        """Read one word as it is written; none where a sign stands."""
        text, start, i = self.text, self.at, self.at
        while i < len(text):
            c = text[i]
            if c == "\\":
                i += 2
            elif c == "'":
                end = text.find("'", i + 1)
                i = len(text) if end < 0 else end + 1
            elif c in '"`':
                i = end_of(text, i)
            elif c == "$" and text[i + 1 : i + 2] in ("(", "{", "'"):
                end = text.find("'", i + 2) + 1
                i = end_of(text, i + 1) if text[i + 1] != "'" else end or len(text)
            elif c == "(" and (text[i - 1] == "=" and tree.ASSIGN.fullmatch(text, start, i)):
                i = end_of(text, i)
            elif c in "<>" and i == start and text[i + 1 : i + 2] == "(":
                i = end_of(text, i + 1)
            elif c == "<" and (shown := _PLACEHOLDER.match(text, i)):
                i = shown.end()
            elif c in " \t\r\n;&|()<>":
                break
            else:
                i += 1
        self.at = min(i, len(text))
        return text[start : self.at]

    def _if(self) -> tree.Node:
        branches: list[tuple[tree.Block | None, tree.Block]] = []
        while True:
            condition = self.block(("then", "fi"))
            self._take("then")
            branches.append((condition, self.block(("elif", "else", "fi"))))
            if not self._take("elif"):
                break
        if self._take("else"):
            branches.append((None, self.block(("fi",))))
        self._take("fi")
        return tree.If(branches)

    def _body(self) -> tree.Block:
        closer = "}" if self._take("{") else "done"
        self._take("do")
        body = self.block((closer,))
        self._take(closer)
        return body

    def _for(self) -> tree.Node:
        self._blank()
        if self.text.startswith("((", self.at):
            end = end_of(self.text, self.at)
            parts = [*self.text[self.at + 2 : end - 2].split(";"), "", ""]
            self.at = end
            return tree.Counting(parts[0], parts[1], parts[2], self._body())
        name = self._word()
        words: list[str] | None = None
        if self._take("in"):
            words = []
            self._blank()
            while word := self._word():
                words.append(word)
                self._blank()
        return tree.For(name, words, self._body())

    def _while(self, until: bool) -> tree.Node:
        condition = self.block(("do",))
        return tree.While(condition, self._body(), until)

    def _case(self) -> tree.Node:
        self._blank()
        word = self._word()
        self._take("in")
        branches: list[tuple[list[str], tree.Block]] = []
        while not self._take("esac") and self.at < len(self.text):
            patterns = []
            while self.at < len(self.text) and self.text[self.at] not in ")\n":
                if one := self._word():
                    patterns.append(one)
                else:
                    self.at += 1
                self._blank()
            self.at += 1
            branches.append((patterns, self.block((";;", "esac"))))
            if match := re.compile(r";;&?|;&").match(self.text, self.at):
                self.at = match.end()
        return tree.Cases(word, branches)

    def _test(self) -> tree.Node:
        words: list[str] = []
        while self.at < len(self.text):
            self._blank()
            if self.text.startswith("\n", self.at):
                self.at += 1
                continue
            if words and words[-1] == "=~":
                match = re.compile(r"(\S+)").match(self.text, self.at)
            else:
                match = re.compile(r"&&|\|\||[()<>]").match(self.text, self.at)
            if match:
                words.append(match[0])
                self.at = match.end()
                continue
            word = self._word()
            if word == "]]":
                break
            words.append(word)
            self.at += 0 if word else 1
        return tree.Tested([w for w in words if w])
