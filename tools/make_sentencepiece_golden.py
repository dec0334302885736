#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/{sp_bpe,sp_unigram}/ and tests/golden/tokenizers/mistral_v3.json.

Two tiny models are trained with SentencePiece; the expected ids of these, and of Mistral's
published model (fixtures/tokenizers), come from the same library.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.20.3 sentencepiece==0.2.0
    /tmp/venv/bin/python tools/make_sentencepiece_golden.py ../shared/fixtures/tokenizers
"""

import io
import json
import pathlib
import sys
import tempfile

import sentencepiece as spm

from make_tokenizer_golden import OUT, STRINGS, TEXT

# The library drops what cannot be decoded or is a control piece, so only ids are recorded.
SOURCE = "sentencepiece %s, Encode(text)" % spm.__version__


def write_vectors(path, processor):
    rows = [json.dumps({"text": t, "ids": processor.encode(t)}, ensure_ascii=True) for t in STRINGS]
    path.write_text('{"source": "%s", "vectors": [\n%s\n]}\n' % (SOURCE, ",\n".join(rows)))


def train(name, **options):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines() * 4), model_writer=model, vocab_size=400,
        hard_vocab_limit=False, control_symbols=["[INST]", "[/INST]"], minloglevel=2, **options)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    write_vectors(folder / "vectors.json", processor)
    print(name, processor.get_piece_size(), "pieces", len(model.getvalue()), "bytes")


def main():
    train("sp_bpe", model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
          remove_extra_whitespaces=False, user_defined_symbols=["<w>", "def", "▁▁", "defx"])
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # e + acute to é, ß to ss, ligature fi to f i, ideographic space to blank, tab to blank
        rules.write("65 301\tE9\nDF\t73 73\nFB01\t66 69\n3000\t20\n9\t20\n41\t61\n41 308\tE4\n")
        rules.flush()
        train("sp_unigram", model_type="unigram", normalization_rule_tsv=rules.name)
    fixture = pathlib.Path(sys.argv[1]) / "mistral_instruct_tokenizer_240323.model.v3"
    write_vectors(OUT / "mistral_v3.json", spm.SentencePieceProcessor(model_file=str(fixture)))


if __name__ == "__main__":
    main()
