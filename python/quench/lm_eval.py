"""Adapter to lm-evaluation-harness: any of its tasks on a run folder, a quantized folder or a GGUF file. ::

    import lm_eval, quench.lm_eval
    results = lm_eval.simple_evaluate(quench.lm_eval.LM("models/demo"), tasks=["arc_easy"])

Needs the package lm_eval.
"""

from __future__ import annotations

from typing import Any

from lm_eval.api.model import TemplateLM

from . import Model

__all__ = ["LM"]


class LM(TemplateLM):
    """``model``: a quench.Model or a path; ``options``: of Model.open()."""

    def __init__(self, model: Model | str, batch_size: int = 8, max_length: int | None = None, **options: Any) -> None:
        super().__init__()
        self.quench = model if isinstance(model, Model) else Model.open(str(model), **options)
        self.batch_size = batch_size
        self.max_length = max_length or self.quench.context_length

    @property
    def eot_token_id(self) -> int:
        return self.quench.tokenizer.eos_id

    @property
    def prefix_token_id(self) -> int:
        bos = self.quench.tokenizer.bos_id
        return self.eot_token_id if bos is None else bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self.quench.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens))

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        return self._score([(context, continuation) for _, context, continuation in requests])

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        sums = []
        for request in requests:
            tokens = self.tok_encode(request.args[0])
            windows = get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1)
            sums.append(sum(score for score, _ in self._score(map(make_disjoint_window, windows))))
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        answers = []
        for request in requests:
            prompt, options = request.args
            until = options.get("until", [])
            tokens = self.tok_encode(prompt, add_special_tokens=True)
            limit = int(options.get("max_gen_toks", 256))
            tokens = tokens[-(self.max_length - limit):]
            answer = self.quench.generate(
                tokens, limit, temperature=float(options.get("temperature") or 0.0) if options.get("do_sample") else 0.0,
                stop=[until] if isinstance(until, str) else list(until))
            answers.append(answer["text"])
        return answers

    def _score(self, pairs: Any) -> list[tuple[float, bool]]:
        room = self.max_length + 1  # the last token is not an input
        return self.quench.score([(context[-max(room - len(rest), 1):], rest) for context, rest in pairs])
