#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/<family>/{tokenizer.json,vectors.json}.

Tiny BPE tokenizers, one for each way that tokenizer.json is used by published models, are trained
on a short text with Hugging Face's `tokenizers` library, which then gives the expected ids.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.20.3
    /tmp/venv/bin/python tools/make_tokenizer_golden.py

vectors.json: a list of {"text", "ids", "plain", "decoded"}: ids with control tokens spelled in the
text taken as tokens, ids with them taken as text, and what the library decodes "ids" to.
"""

import json
import pathlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizers"
VOCABULARY = 400

TEXT = """The snake sheds its skin; the adder's bite isn't as bad as they'd say. We'll see, I'm sure!
In 1998 there were 12345 of them, in 2024 only 678 (minus 9). It's 3.14159, or 22/7, about 3.
    def scan(state, x):    # four blanks
        return state * decay + x
Das Größte überhaupt, naïve café, señor, déjà vu. Привет, мир! Как дела? Γειά σου κόσμε.
你好,世界。今天天气很好。こんにちは世界。 สวัสดี नमस्ते שלום
Tabs\tand\nnewlines\r\n\r\nand  two   three    four blanks. THE END. The end... the END!!!
she sells sea shells, the other shell, these, those, there, then, than, that, this, his, hers.
"""

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
          r"\s*[\r\n]|\s+(?!\S)|\s+")

STRINGS = [
    "", " ", "  ", "   ", "\n", "\t", "\r\n", " \n \n", "a", " a", "a ", "  a  b   c    ", "the",
    "The snake's skin", "it's IT'S we'LL they'd I'M don't 'S 's'", "'\u017f 'ſs K'\u212a",
    "1", "12", "123", "1234", "1234567890", "3.14159", "1,234,567.89", "a1b22c333d4444",
    "x²+y³=½ Ⅷ ٣٤٥ १२३ ௧௨௩", "..., !!! ??? :-) #@$%^&*", "a.b,c;d", "$+<=>^`|~", "«quoted» “text” —dash",
    "café", "cafe\u0301", "e\u0301e\u0300\u0323o\u0323\u0301", "\u1e9b\u0323", "ﬁ ﬂ Å Å ① ㎏ ﷺ",
    "Größe ÄÖÜ ß ẞ", "Привет, мир!", "Γειά σου", "你好,世界。", "你好 世界 123", "こんにちは", "สวัสดี ครับ",
    "नमस्ते", "שלום עולם", "🚀", "🚀🚀 🚀", "👩\u200d💻👨\u200d👩\u200d👧", "🏳️\u200d🌈 ☺️", "\u00a0nbsp\u00a0 x",
    "a\u3000b\u2003c\u2028d\u2029e", "\u180eo\u180e \u200b\ufeff\u00ad", "\x00\x01\x7f\x80",
    "tab\tab\t\tx \t y", "line\n\n\nline\r\n \r\n  line", "trailing blanks     ", "     leading",
    "def scan(state, x):\n        return state * decay + x\n", "a_b-c__d ___", "http://x.y/z?q=1&r=[2]",
    "<s>hello</s>", "x<s> y </s>z", "<0x0A> <0xZZ> <unk>", "▁a▁▁b▁", "Ġthe Ċ",
    "left<l>  <l>right", "  <l>  x <r>  y", "<r>\n\t<r> <l><r>", "one<w>two <w> three<w>, <w>four",
    "<w>", "É<w>É <n> <n>x <N>", "cafe\u0301é caféx", "  ​  <s>  ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "thethethethethethethethethethethethethethethethethethethethe" * 3, " " * 70 + "x", "\n" * 60,
    "9" * 61, "Ⓐ<w>ⓑ _<w>_ ़<w>", "ab\u0300<w>", "𝔘𝔫𝔦 𐍈 \U0010ffff \ue000",
]


def added_tokens():
    return [
        AddedToken("<l>", lstrip=True, normalized=False),
        AddedToken("<r>", rstrip=True, normalized=False),
        AddedToken("<w>", single_word=True, normalized=False),
        AddedToken("<n>", normalized=True),
        AddedToken("é caf", normalized=True),
    ]


def train(tokenizer, byte_level):
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [])
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens(added_tokens())


def byte_level(normalizer, pre_tokenizer, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, True)
    return tokenizer


def gpt2():
    return byte_level(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama3():
    tokenizer = byte_level(None, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])])
    return tokenizer


def cl100k():
    return byte_level(None, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CL100K), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def falcon():
    return byte_level(None, pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def mixed():
    """Steps and behaviours that the others leave out."""
    return byte_level(normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("...", "…"),
                                            normalizers.Replace(Regex(r"\t+"), " ")]),
                      pre_tokenizers.Sequence([
                          pre_tokenizers.Split(" ", "merged_with_next"),
                          pre_tokenizers.Split(Regex(r"[\r\n]+"), "merged_with_previous"),
                          pre_tokenizers.Split(Regex(r"\h{2}"), "contiguous"),
                          pre_tokenizers.Digits(individual_digits=True),
                          pre_tokenizers.Punctuation(),
                          pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]))


def with_byte_tokens(tokenizer):
    """Puts the 256 byte tokens behind <unk>, <s> and </s>, as SentencePiece does."""
    spec = json.loads(tokenizer.to_str())
    old = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    tokens = old[:3] + [f"<0x{i:02X}>" for i in range(256)] + old[3:]
    spec["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    for token in spec["added_tokens"][3:]:
        token["id"] += 256
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    return Tokenizer.from_str(json.dumps(spec)), spec


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    # Trained on words, as a text of one word has no use for frequencies.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(tokenizer, False)
    tokenizer.pre_tokenizer = None
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    return with_byte_tokens(tokenizer)


def metaspace():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    train(tokenizer, False)
    return tokenizer


def main():
    for make in (gpt2, llama3, cl100k, falcon, mixed, llama2, metaspace):
        tokenizer = make()
        spec = None
        if isinstance(tokenizer, tuple):
            tokenizer, spec = tokenizer
        folder = OUT / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        spec = spec or json.loads(tokenizer.to_str())
        (folder / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False) + "\n")
        rows = []
        for text in STRINGS:
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            rows.append(json.dumps({"text": text, "ids": ids, "plain": plain, "decoded": decoded},
                                   ensure_ascii=True))
        (folder / "vectors.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
        print(make.__name__, tokenizer.get_vocab_size(), "tokens", len(rows), "vectors, tokenizers",
              tokenizers.__version__)


if __name__ == "__main__":
    main()
