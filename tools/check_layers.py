#!/usr/bin/env python3
"""Layer rules: which folder of the tree may include which, and how long a file may be.

A folder may include itself and what its row names. Third-party headers stay in .cc files, fmt
excepted, so that a public header costs nothing to include.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAY_INCLUDE = {
    "core": [],
    "io": ["core"],
    "text": ["core"],
    "kernels": ["core"],
    "backends": ["core", "kernels"],
    "ops": ["core", "kernels", "backends/registry.h"],
    "model": ["core", "io", "kernels"],
    "engine": ["core", "io", "text", "kernels", "model", "backends/registry.h"],
    "measure": ["core", "io", "kernels", "model", "engine", "backends/registry.h"],
    "server": ["core", "text", "engine"],
    "apps": ["core", "io", "engine", "measure", "server"],
    "python": ["core", "text", "ops", "engine"],
}
MAX_LINES = 800
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
THIRD_PARTY = re.compile(r"^(nlohmann|CLI|hwy|pcre2|utf8proc|sentencepiece|curl|openssl|boost|pybind11|gtest|benchmark)\b")
# Highway's pattern needs headers that are compiled once per instruction set; the command line's and
# the Python module's own headers are nobody else's; the last two are shared by the .cc files of one reader each.
THIRD_PARTY_HEADERS = re.compile(
    r"(-inl\.h$|^apps/|^python/|^src/text/tokenizer_json_sax\.h$|^src/server/json\.h$)")


def check(path, layer):
    text = path.read_text()
    name = path.relative_to(ROOT).as_posix()
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{name}: {lines} lines, at most {MAX_LINES}"
    if path.suffix in (".h", ".cuh") and "#pragma once" not in text and not name.endswith("-inl.h"):
        yield f"{name}: '#pragma once' is missing"
    for quote, target in INCLUDE.findall(text):
        if quote == "<":
            if path.suffix in (".h", ".cuh") and THIRD_PARTY.match(target) and not THIRD_PARTY_HEADERS.search(name):
                yield f"{name}: third-party header <{target}> outside a .cc file"
            continue
        folder = target.split("/")[0]
        if "/" not in target:
            if not (path.parent / target).exists():
                yield f'{name}: "{target}" is not a path from the root of src'
        elif folder in MAY_INCLUDE and folder != layer:
            allowed = MAY_INCLUDE[layer]
            if folder not in allowed and target not in allowed:
                yield f'{name}: {layer} may not include "{target}" (allowed: {", ".join(allowed)})'


def main():
    problems, files = [], 0
    for layer in MAY_INCLUDE:
        folder = ROOT / layer if layer in ("apps", "python") else ROOT / "src" / layer
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                files += 1
                problems += check(path, layer)
    for folder in ("tests", "fuzz", "bench"):
        for path in sorted((ROOT / folder).rglob("*.cc")):
            lines = path.read_text().count("\n")
            files += 1
            if lines > MAX_LINES:
                problems.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {MAX_LINES}")
    for problem in problems:
        print(problem)
    print(f"layer rules: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
