#!/usr/bin/env python3
"""Build the training text of the demo model from Debian packages only.

    apt-get install bible-kjv bible-kjv-text r-cran-janeaustenr \\
        golang-github-klauspost-compress-dev golang-1.19-src
    python3 tools/prepare_demo_data.py --out data

R, Go and numpy are not needed: the R data file is parsed here.  With
--root DIR the files are looked for below DIR instead of / (for packages
unpacked with `dpkg -x`).  Every work is in the public domain.  "Persuasion"
is held out: it is never written.

Written to --out: one file per source, in which works are separated by a zero
byte, and manifest.json with the sampling weight, the size and the SHA-256 of
each file.  The Austen novels are written twice: as lines hard-wrapped as in
the package, and with the lines of each paragraph joined.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import zlib

NOVELS = ["sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey"]
HELD_OUT = "persuasion"

# file -> share of the bytes seen in training
WEIGHTS = {
    "austen.txt": 0.42,
    "austen_wrapped.txt": 0.26,
    "bible.txt": 0.20,
    "sawyer.txt": 0.08,
    "opticks.txt": 0.04,
}

AUSTEN = "usr/lib/R/site-library/janeaustenr/data/Rdata"
SAWYER = "usr/share/gocode/src/github.com/klauspost/compress/testdata/Mark.Twain-Tom.Sawyer.txt"
OPTICKS = "usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt"


class RReader:
    """The part of R's XDR serialisation that string vectors and indexes need."""

    def __init__(self, data):
        if data[:2] != b"X\n":
            raise ValueError("not an XDR-serialised R object")
        self.data, self.pos, self.refs = data, 2, []
        version = self.int()
        self.pos += 8
        if version == 3:
            size = self.int()
            self.pos += size

    def int(self):
        (value,) = struct.unpack_from(">i", self.data, self.pos)
        self.pos += 4
        return value

    def item(self):
        flags = self.int()
        kind = flags & 0xFF
        if kind == 0xFE:  # NULL
            return None
        if kind == 0xFF:  # reference to an earlier symbol
            index = flags >> 8
            return self.refs[(index or self.int()) - 1]
        if kind == 1:  # symbol
            name = self.item()
            self.refs.append(name)
            return name
        if kind == 2:  # pairlist -> dict
            result = {}
            while kind == 2:
                if flags & 0x200:
                    self.item()
                tag = self.item() if flags & 0x400 else None
                result[tag] = self.item()
                flags = self.int()
                kind = flags & 0xFF
            return result
        if kind == 9:  # one string
            size = self.int()
            if size < 0:
                return None
            raw = self.data[self.pos:self.pos + size]
            self.pos += size
            return raw.decode("utf-8")
        if kind in (10, 13):  # logicals, integers
            value = [self.int() for _ in range(self.int())]
        elif kind in (16, 19):  # strings, generic list
            value = [self.item() for _ in range(self.int())]
        else:
            raise ValueError("R object kind %d is not handled" % kind)
        if flags & 0x200:
            attributes = self.item()
            if kind == 19 and "names" in attributes:
                value = dict(zip(attributes["names"], value))
        return value


def read_novel(root, name):
    base = os.path.join(root, AUSTEN)
    with open(base + ".rdx", "rb") as f:
        index = RReader(gzip.decompress(f.read())).item()["variables"]
    offset, size = index[name]
    with open(base + ".rdb", "rb") as f:
        f.seek(offset)
        raw = f.read(size)
    return RReader(zlib.decompress(raw[4:])).item()


ASCII = {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--",
    "\u2026": "...", "\u00a0": " ", "\u00e0": "a", "\u00e2": "a", "\u00e6": "ae", "\u00c6": "Ae",
    "\u00e7": "c", "\u00e8": "e", "\u00e9": "e", "\u00c9": "E", "\u00ea": "e", "\u00eb": "e",
    "\u00ef": "i", "\u00ee": "i", "\u00f4": "o", "\u00f6": "o", "\u00fb": "u", "\u00fc": "u",
    "\u0153": "oe", "\u00a3": "L", "\ufeff": "",
}


def to_ascii(text):
    text = "".join(ASCII.get(c, c) for c in text)
    return text.encode("ascii", "ignore").decode("ascii")


def tidy(lines):
    """Hard-wrapped form: no trailing blanks, at most one empty line in a row."""
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def join(text):
    """One line per paragraph, single blanks, no underscores of emphasis."""
    paragraphs = []
    for block in text.split("\n\n"):
        block = re.sub(r"\s+", " ", block.replace("_", "")).strip()
        if block:
            paragraphs.append(block)
    return "\n\n".join(paragraphs) + "\n"


def bible(root):
    program, data = os.path.join(root, "usr/bin/bible"), os.path.join(root, "usr/lib/bible.data")
    out = subprocess.run([program, "-p", data[:-len("bible.data")], "-f", "gen1:1-rev22:21"],
                         check=True, stdout=subprocess.PIPE).stdout.decode("latin-1")
    books, last_book, last_chapter = [], None, None
    for line in out.splitlines():
        m = re.match(r"(\d?\s?[A-Za-z]+)(\d+):(\d+)\s+(.*)", line)
        if not m:
            continue
        book, chapter, verse = m.group(1), m.group(2), to_ascii(m.group(4)).strip()
        if book != last_book:
            books.append([])
        if book != last_book or chapter != last_chapter:
            books[-1].append([])
        books[-1][-1].append(verse)
        last_book, last_chapter = book, chapter
    if len(books) != 66:
        raise SystemExit("expected 66 books of the Bible, found %d" % len(books))
    return ["\n\n".join(" ".join(chapter) for chapter in book) + "\n" for book in books]


def plain(root, path, first, last):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        text = f.read()
    start, stop = text.index(first), text.rindex(last) + len(last)
    text = to_ascii(text[start:stop]).replace("[Illustration]", "")
    return [join(tidy(text.splitlines()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="/", help="where the packages are unpacked")
    parser.add_argument("--out", default="data", help="folder to write")
    args = parser.parse_args()
    assert HELD_OUT not in NOVELS
    wrapped = [tidy([to_ascii(line) for line in read_novel(args.root, name)]) for name in NOVELS]
    sources = {
        "austen.txt": [join(text) for text in wrapped],
        "austen_wrapped.txt": wrapped,
        "bible.txt": bible(args.root),
        "sawyer.txt": plain(args.root, SAWYER, "P R E F A C E", "at present."),
        "opticks.txt": plain(args.root, OPTICKS, "My Design in this Book", "."),
    }
    os.makedirs(args.out, exist_ok=True)
    manifest = []
    for name, works in sources.items():
        data = "\0".join(works).encode("ascii") + b"\0"
        with open(os.path.join(args.out, name), "wb") as f:
            f.write(data)
        manifest.append({"file": name, "weight": WEIGHTS[name], "works": len(works),
                         "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        print("%-20s %2d works %8d bytes" % (name, len(works), len(data)))
    with open(os.path.join(args.out, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    sys.exit(main())
