"""Write the manual pages of the commands, from their help: `python tools/manpages.py FOLDER`.

One page a command, gpuscale.1 and gpuscale-NAME.1, for `man gpuscale-plan` and for packages.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from gpuscale.answers.table import COMMANDS
from gpuscale.cli.help import OTHERS, help_text
from gpuscale.cli.parser import other_help
from gpuscale.version import __version__


def help_of(*words: str) -> str:
    """Help of a command as it is printed."""
    return help_text(" ".join(words), "all", 80)


def escaped(text: str) -> str:
    """Text for troff: no hyphens but minus signs, no line that is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def page(name: str, about: str, text: str) -> str:
    """Make a page of a help text: synopsis, what it says, its options as they stand."""
    usage, _, rest = text.strip().partition("\n\n")
    said, _, options = rest.partition("\n\n")
    date = os.environ.get("GPUSCALE_MAN_DATE", "")
    see = escaped("gpuscale-plan(1), gpuscale-memory(1)" if name == "gpuscale" else "gpuscale(1)")
    parts = [
        f'.TH {escaped(name.upper())} 1 "{date}" "gpuscale {__version__}" "gpuscale"',
        f".SH NAME\n{escaped(name)} \\- {escaped(about.rstrip('.'))}",
        f".SH SYNOPSIS\n.nf\n{escaped(usage.removeprefix('Usage: ').strip())}\n.fi",
        f".SH DESCRIPTION\n.nf\n{escaped(said.strip())}\n.fi",
        f".SH OPTIONS\n.nf\n{escaped(options.rstrip())}\n.fi" if options else "",
        ".SH EXIT STATUS\n0 answered; 1 answered, and the answer is no; 2 a wrong option, file or "
        "preset; 70 a bug of gpuscale; 130 stopped by Ctrl\\-C.",
        f".SH SEE ALSO\n{see}",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def pages() -> dict[str, str]:
    """File name and content of every page."""
    made = {"gpuscale.1": page("gpuscale", "capacity planner for large language models", help_of())}
    for name, about in COMMANDS.items():
        made[f"gpuscale-{name}.1"] = page(f"gpuscale-{name}", about, help_of(name))
    for name, about in OTHERS.items():
        made[f"gpuscale-{name}.1"] = page(f"gpuscale-{name}", about, other_help(name))
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
