"""quench.Model: the program's numbers, arrays of callers, threads, and refusals."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import unittest

import numpy as np
import quench
import support


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = quench.Model.open(support.trained(), device="cpu")
        cls.tokens = cls.model.tokenizer.encode("10 plus 11 is")

    def refuses(self, text, call, code="invalid_argument"):
        with self.assertRaises(quench.Error) as caught:
            call()
        self.assertIn(text, str(caught.exception))
        self.assertEqual(caught.exception.code, code)

    def test_facts_are_those_of_the_run(self):
        self.assertEqual(self.model.kind, "run folder")
        self.assertEqual(self.model.device, "cpu")
        self.assertEqual(self.model.vocab_size, 259)
        self.assertEqual(self.model.context_length, 128)
        self.assertEqual(self.model.config["hidden_size"], 32)
        self.assertFalse(self.model.is_quantized)
        self.assertEqual(self.model.tokenizer.decode(self.tokens, skip_special=True), "10 plus 11 is")

    def test_logits_give_the_log_probabilities(self):
        logits = np.asarray(self.model.forward(self.tokens)).astype(np.float64)
        self.assertEqual(logits.shape, (len(self.tokens), 259))
        shifted = logits - logits.max(-1, keepdims=True)
        expected = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        expected = expected[np.arange(len(self.tokens) - 1), self.tokens[1:]]
        np.testing.assert_allclose(np.asarray(self.model.logprobs(self.tokens)), expected, atol=2e-6)

    def test_rows_of_a_batch_do_not_see_each_other(self):
        other = list(reversed(self.tokens))
        both = np.asarray(self.model.forward(np.array([self.tokens, other])))
        self.assertEqual(both.shape, (2, len(self.tokens), 259))
        np.testing.assert_allclose(both[0], np.asarray(self.model.forward(self.tokens)), atol=1e-5)
        np.testing.assert_allclose(both[1], np.asarray(self.model.forward(other)), atol=1e-5)

    def test_arrays_of_any_integer_type_and_stride_are_read(self):
        expected = np.asarray(self.model.forward(self.tokens))
        bytes_only = np.asarray(self.model.forward(self.tokens[1:]))  # the first, BOS, is 256
        np.testing.assert_array_equal(np.asarray(self.model.forward(np.array(self.tokens[1:], np.uint8))), bytes_only)
        for dtype in (np.int16, np.int32, np.int64, np.uint64):
            np.testing.assert_array_equal(np.asarray(self.model.forward(np.array(self.tokens, dtype))), expected)
        spaced = np.zeros((len(self.tokens), 3), np.int64)
        spaced[:, 1] = self.tokens
        np.testing.assert_array_equal(np.asarray(self.model.forward(spaced[:, 1])), expected)
        np.testing.assert_array_equal(np.from_dlpack(self.model.forward(tuple(self.tokens))), expected)

    def test_result_lives_longer_than_the_model(self):
        model = quench.Model.open(str(support.trained()), device="cpu")
        logits = np.asarray(model.forward(self.tokens))
        kept = logits.copy()
        np.asarray(model.forward(self.tokens[::-1]))
        del model
        np.testing.assert_array_equal(logits, kept)

    def test_wrong_tokens_are_refused_by_name(self):
        forward = self.model.forward
        self.refuses("float64, expected integers", lambda: forward(np.zeros(3)))
        self.refuses("[1, 1, 2], expected [T] or [B, T]", lambda: forward(np.zeros((1, 1, 2), np.int32)))
        self.refuses("259 at position 1 is outside the vocabulary of 259", lambda: forward([1, 259]))
        self.refuses("-1 at position 0", lambda: forward(np.array([-1])))
        self.refuses("row 1 has 1 tokens, the rows before it 2", lambda: forward([[1, 2], [3]]))
        self.refuses("no tokens", lambda: forward([]))
        self.refuses("'a' in a list of token ids", lambda: forward([1, "a"]))
        self.refuses("expected a list of token ids or an integer array", lambda: forward("text"))
        self.refuses("one token, expected two", lambda: self.model.logprobs([1]))

    def test_scores_are_sums_of_log_probabilities(self):
        context, rest = self.tokens[:4], self.tokens[4:]
        greedy = self.model.generate(context, 5, ignore_eos=True)["tokens"]
        (score, is_greedy), (_, of_greedy) = self.model.score([(context, rest), (context, greedy)])
        expected = float(np.asarray(self.model.logprobs(self.tokens), np.float64)[3:].sum())
        self.assertAlmostEqual(score, expected, places=4)
        self.assertEqual(is_greedy, rest == greedy)
        self.assertTrue(of_greedy)

    def test_generation_is_that_of_the_program(self):
        done = support.program("generate", "--model", support.trained(), "--prompt", "10 plus", "--max-new-tokens", 12,
                               "--temperature", 0.8, "--seed", 7, "--json", "--device", "cpu")
        expected = json.loads(done.stdout)
        pieces = []
        got = self.model.generate("10 plus", 12, temperature=0.8, seed=7, on_text=pieces.append)
        self.assertEqual(got["tokens"], expected["tokens"])
        self.assertEqual(got["text"], expected["text"])
        self.assertEqual("".join(pieces), got["text"])
        self.assertEqual(got["prompt_tokens"], expected["prompt_tokens"])

    def test_many_prompts_are_answered_in_their_order(self):
        prompts = ["1 plus", self.tokens, "20 plus 21"]
        together = self.model.generate(prompts, 8)
        for prompt, answer in zip(prompts, together):
            self.assertEqual(answer["tokens"], self.model.generate(prompt, 8)["tokens"])
        self.assertEqual(self.model.generate([], 8), [])

    def test_stop_text_ends_an_answer_and_is_not_part_of_it(self):
        text = self.model.generate("10 plus", 20, ignore_eos=True)["text"]
        stop = text[4:6]
        answer = self.model.generate("10 plus", 20, stop=[stop], ignore_eos=True)
        self.assertEqual(answer["text"], text[: text.index(stop)])
        self.assertEqual(answer["ended_by"], "stop text")

    def test_answers_keep_to_a_schema(self):
        schema = {"type": "array", "items": {"enum": [1, 20, True]}, "minItems": 2, "maxItems": 3}
        for answer in self.model.generate(["10 plus", "1 plus"], 100, json_schema=schema, temperature=1.0):
            self.assertIn(len(json.loads(answer["text"])), (2, 3))
            self.assertEqual(answer["ended_by"], "stop token")
        answer = self.model.generate("10 plus", regex="[0-4]{3}x", ignore_eos=True)
        self.assertRegex(answer["text"], "^[0-4]{3}x$")
        self.refuses("uniqueItems", lambda: self.model.generate("1", json_schema={"uniqueItems": True}), "bad_config")

    def test_callback_can_end_an_answer_and_may_raise(self):
        self.assertEqual(len(self.model.generate("10 plus", 20, ignore_eos=True, on_text=lambda _: False)["tokens"]), 1)

        def fail(_):
            raise KeyError("of the callback")

        with self.assertRaisesRegex(quench.Error, "in a callback of its own call"):
            self.model.generate("10 plus", 20, on_text=lambda _: self.model.generate("1", 1))
        with self.assertRaisesRegex(KeyError, "of the callback"):
            self.model.generate("10 plus", 20, on_text=fail)
        self.assertEqual(self.model.generate("10 plus", 3, ignore_eos=True)["ended_by"], "length")  # works on

    def test_generation_refuses_what_does_not_fit(self):
        self.refuses("has room for", lambda: self.model.generate("10 plus", 10_000))
        self.refuses("temperature", lambda: self.model.generate("10 plus", temperature=-1), "bad_config")
        self.refuses("an empty text ends every answer", lambda: self.model.generate("10 plus", stop=[""]))

    def test_control_c_ends_a_generation(self):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            while True:
                self.model.generate("10 plus", 100, ignore_eos=True)
        timer.join()
        self.assertEqual(len(self.model.generate("10 plus", 3, ignore_eos=True)["tokens"]), 3)

    def test_threads_take_turns(self):
        expected = np.asarray(self.model.forward(self.tokens))
        results = [None] * 4

        def work(i):
            results[i] = np.asarray(self.model.forward(self.tokens))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)

    def test_forked_process_is_refused(self):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.model.forward(self.tokens)
                text = "no error"
            except quench.Error as error:
                text = str(error)
            os.write(write, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn("forked", os.read(read, 1000).decode())

    def test_quantized_model_is_that_of_the_program(self):
        ours, theirs = support.FOLDER / "ours-int4", support.FOLDER / "theirs-int4"
        small = self.model.quantize(str(ours), "int4_weight_only_g32")
        support.program("quantize", "--model", support.trained(), "--scheme", "int4_weight_only_g32", "--output", theirs)
        self.assertTrue(small.is_quantized)
        self.assertEqual((ours / "model.safetensors").read_bytes(), (theirs / "model.safetensors").read_bytes())
        self.assertEqual(np.asarray(small.forward(self.tokens)).shape, (len(self.tokens), 259))

    def test_saved_model_opens_again(self):
        saved = self.model.save(str(support.FOLDER / "saved"))
        self.assertEqual(saved["parameters"], self.model.parameters)
        again = quench.Model.open(saved["output"], device="cpu")
        np.testing.assert_array_equal(np.asarray(again.forward(self.tokens)), np.asarray(self.model.forward(self.tokens)))

    def test_cache_of_readers_is_an_option(self):
        folder = support.FOLDER / "cached"
        self.model.save(str(folder), format="compressed-tensors", scheme="int8_weight_only", kv_cache="int8", kv_cache_scales="dynamic")
        self.assertIn("kv_cache_scheme", (folder / "config.json").read_text())

    def test_mistakes_of_saving_are_named(self):
        path = str(support.FOLDER / "mistake")
        self.refuses('no option "shceme"', lambda: self.model.save(path, shceme="int4"), "bad_config")
        self.refuses("int5", lambda: self.model.save(path, scheme="int5"), "bad_config")
        self.assertFalse(os.path.exists(path))

    def test_absent_model_is_named(self):
        self.refuses("no/such", lambda: quench.Model.open("no/such"), "not_found")

    def test_perplexity_is_that_of_the_text(self):
        value = self.model.perplexity([str(support.text_file())])
        self.assertTrue(1 < value < 300 and math.isfinite(value))


if __name__ == "__main__":
    unittest.main()
