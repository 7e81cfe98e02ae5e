"""Writes the TextMate grammars of the package from the tables of words and functions.

python tools/grammars.py            rewrite the files in src/omnigraph/editor
python tools/grammars.py --check    change nothing; exit 1 if one is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph.editor.grammar import FILES, grammar

FOLDER = Path(__file__).resolve().parents[1] / "src" / "omnigraph" / "editor"


def text(language: str) -> str:
    return json.dumps(grammar(language), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    stale = [
        language
        for language, name in FILES.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != text(language)
    ]
    if "--check" not in sys.argv:
        for language in stale:
            (FOLDER / FILES[language]).write_text(text(language), "utf-8")
        return 0
    for language in stale:
        sys.stdout.write(f"{FILES[language]} is out of date; run python tools/grammars.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
