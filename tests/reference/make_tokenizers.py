"""Writes tokenizers.json: small tokenizers of the shapes that SentencePiece models are converted to, and what Hugging
Face tokenizers makes of awkward texts with them.

    pip install tokenizers sentencepiece protobuf transformers
    python tests/reference/make_tokenizers.py

The vocabularies are trained with SentencePiece on the text below; the pipelines are those of published tokenizer.json
files. tests/data/tokenizer_sentencepiece_json_test.cpp reads the result.
"""

import json
import pathlib
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

HERE = pathlib.Path(__file__).parent
MARK = "\u2581"

TRAINING_TEXT = """The quick brown fox jumps over the lazy dog. The dog sleeps; the fox does not.
Hello world, hello there! What is the matter with the other one, then?
In 1984 and 2024 there were 12 or 345 of them, at 6.78 each.
    def function(argument):
        return argument + 1
\u00c9t\u00e9 \u00e0 la plage, c'est d\u00e9j\u00e0 vu. \u00dcber allen Gipfeln ist Ruh.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c\u3002
""" * 20

TEXTS = [
    "",
    " ",
    "  ",
    "     ",
    "a",
    " a",
    "  a",
    "a ",
    "a  ",
    "Hello world",
    " Hello world",
    "Hello  world",
    "Hello   world   ",
    "the the  the   the",
    "\n",
    "\n\n",
    " \n ",
    "line one\nline two\r\nline three\n",
    "\tdef function(argument):\n\t\treturn argument\n",
    "    def function(argument):\n        return argument + 1\n",
    "1234567890 3.14 -17",
    "\u00e9t\u00e9 e\u0301te\u0301 \u00dcber",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u043a\u0430\u043a",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6c49\u5b57",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "a\U0001f600b \U0001f600 \U0001f600\U0001f600",
    "\u2581",
    "\u2581a\u2581\u2581b",
    "a \u2581 b",
    "\u00a0non\u00a0breaking\u3000wide\u2009thin",
    "zero\u200bwidth\ufeffmark",
    "\u0000\u0001\u001b[31m\u007f",
    "a\u0300\u0301\u0302\u0303b",
    "\u202eright to left\u202c \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "<s>",
    "<s>Hello",
    "<s> Hello",
    "Hello<s>world",
    "Hello <s> world </s>",
    "</s></s> x<s>",
    "<s><unk></s>",
    "<unk> unknown",
    "<0x0A><0x41>",
    "<extra>",
    "before <extra> after",
    "before<extra>after",
    "  <extra>  <s>  ",
    "[INST] What is it? [/INST] It is.</s>",
    "x" * 50,
    "the" * 20,
    " " * 33 + "x",
    "\u00ff\u0100\u07ff\u0800\uffff\U00010000\U0010ffff",
]


def train(kind, size, byte_fallback):
    """A SentencePiece model without normalization, as a ModelProto."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "text").write_text(TRAINING_TEXT, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.Train(
            input=str(path / "text"), model_prefix=str(path / "m"), model_type=kind, vocab_size=size,
            byte_fallback=byte_fallback, normalization_rule_name="identity", remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True, split_digits=True, hard_vocab_limit=False, num_threads=1,
            character_coverage=0.98, minloglevel=2)
        return sentencepiece_model_pb2.ModelProto.FromString((path / "m.model").read_bytes())


def bpe(proto, byte_fallback, fuse_unk=True):
    """A piece comes from every pair of pieces that join to it; the order is that of the pieces' ids."""
    ids = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = []
    for i, piece in enumerate(proto.pieces):
        if piece.type != piece.NORMAL:
            continue
        text = piece.piece
        pairs = [(text[:k], text[k:]) for k in range(1, len(text)) if text[:k] in ids and text[k:] in ids]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": fuse_unk, "byte_fallback": byte_fallback, "ignore_merges": False,
            "vocab": ids, "merges": [list(pair) for pair in merges]}


def unigram(proto, byte_fallback):
    return {"type": "Unigram", "unk_id": 0, "vocab": [[piece.piece, piece.score] for piece in proto.pieces],
            "byte_fallback": byte_fallback}


def added(identifier, content, **flags):
    token = {"id": identifier, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    token.update(flags)
    return token


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


PREPEND = {"type": "Prepend", "prepend": MARK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
BACK = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = sequence("decoders", BACK, {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
NO_STRIP_DECODER = sequence("decoders", BACK, {"type": "ByteFallback"}, {"type": "Fuse"})
BOS_TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}
SPECIALS = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]

PIPELINES = [  # name, model, normalizer, pre_tokenizer, post_processor, decoder, flags of an added token <extra>
    ("llama2_prepend", "bpe", sequence("normalizers", PREPEND, REPLACE), None, BOS_TEMPLATE, LLAMA_DECODER, {}),
    ("llama2_normalized_token", "bpe", sequence("normalizers", PREPEND, REPLACE), None, BOS_TEMPLATE, LLAMA_DECODER,
     {"normalized": True, "special": False}),
    ("metaspace_first_whole", "bpe", None, metaspace("first", False), BOS_TEMPLATE, LLAMA_DECODER, {}),
    ("metaspace_first_split", "bpe", None, metaspace("first", True), BOS_TEMPLATE, LLAMA_DECODER,
     {"lstrip": True, "rstrip": True}),
    ("metaspace_always_whole", "bpe", None, metaspace("always", False), None, metaspace("always", True),
     {"lstrip": True}),
    ("metaspace_always_split", "bpe", None, metaspace("always", True), None, metaspace("always", True), {}),
    ("metaspace_never", "bpe", None, metaspace("never", False), None, NO_STRIP_DECODER,
     {"normalized": True, "special": False}),
    ("metaspace_old_form", "bpe", None, {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}, None,
     {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}, {}),
    ("replace_only", "bpe", REPLACE, None, BOS_TEMPLATE, NO_STRIP_DECODER, {}),
    # Gemma's; the split finds nothing, since the normalizer leaves no space.
    ("gemma", "bpe", REPLACE, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                               "invert": False}, BOS_TEMPLATE, NO_STRIP_DECODER, {}),
    ("digits_then_metaspace", "bpe", {"type": "NFC"},
     sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, metaspace("first", True)), BOS_TEMPLATE,
     LLAMA_DECODER, {}),
    ("no_bytes_fused", "bpe_no_bytes_fused", sequence("normalizers", PREPEND, REPLACE), None, None, LLAMA_DECODER, {}),
    ("no_bytes", "bpe_no_bytes", sequence("normalizers", PREPEND, REPLACE), None, None, LLAMA_DECODER, {}),
    ("some_bytes", "bpe_some_bytes", sequence("normalizers", PREPEND, REPLACE), None, None, LLAMA_DECODER, {}),
    ("ignore_merges", "bpe_ignore_merges", None, metaspace("first", True), None, LLAMA_DECODER, {}),
    ("unigram_bytes", "unigram_bytes", sequence("normalizers", PREPEND, REPLACE), None, BOS_TEMPLATE, LLAMA_DECODER,
     {}),
    ("unigram_metaspace", "unigram_bytes", None, metaspace("always", True), None, metaspace("always", True), {}),
    ("unigram_unknown", "unigram", None, metaspace("first", True), BOS_TEMPLATE, metaspace("first", True),
     {"normalized": True, "special": False}),
]


def models():
    with_bytes, without = train("bpe", 560, True), train("bpe", 300, False)
    result = {"bpe": bpe(with_bytes, True), "bpe_no_bytes": bpe(without, False, fuse_unk=False),
              "bpe_no_bytes_fused": bpe(without, False), "unigram_bytes": unigram(train("unigram", 520, True), True),
              "unigram": unigram(train("unigram", 200, False), False)}
    # Only bytes below 0xC0 have tokens: some characters fall back, others are unknown.
    some = bpe(without, True)
    for byte in range(0xE5):
        some["vocab"][f"<0x{byte:02X}>"] = len(some["vocab"])
    result["bpe_some_bytes"] = some
    # Without the merges of the last tokens these are found only whole.
    whole = bpe(without, False)
    whole["ignore_merges"] = True
    whole["merges"] = whole["merges"][: len(whole["merges"]) // 2]
    result["bpe_ignore_merges"] = whole
    return result


def main():
    vocabularies = models()
    entries = []
    for name, model, normalizer, pre_tokenizer, post_processor, decoder, flags in PIPELINES:
        extra = added(len(vocabularies[model]["vocab"]), "<extra>", **flags)
        pipeline = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": SPECIALS + [extra],
                    "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
                    "decoder": decoder}
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(pipeline | {"model": vocabularies[model]}))
        cases = []
        for text in TEXTS:
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append([tokenizer.encode(text).ids, plain, tokenizer.decode(plain, skip_special_tokens=False),
                          tokenizer.decode(plain, skip_special_tokens=True)])
        entries.append({"name": name, "model": model, "pipeline": pipeline, "cases": cases})
    result = {"made_by": f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}",
              "case": ["ids", "ids without special tokens", "decoded", "decoded without special tokens"],
              "texts": TEXTS, "models": vocabularies, "tokenizers": entries}
    lines = json.dumps(result, ensure_ascii=True, separators=(",", ":"))
    lines = lines.replace('{"name":', '\n{"name":').replace('"models":', '\n"models":').replace("]],[", "]],\n[")
    (HERE / "tokenizers.json").write_text(lines + "\n")
    print(sum(len(e["cases"]) for e in entries), "cases")


if __name__ == "__main__":
    main()
