"""quench.Trainer: the program's bits, data and callbacks of one's own, interruptions."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import unittest

import numpy as np
import quench
import quench.callbacks
import support

RECORDS = [f"{i} plus {i + 1} is {2 * i + 1}." for i in range(200)]


def make(name, overrides=None, steps=6, **options):
    return quench.Trainer(support.config(name, steps), overrides, device="cpu", quiet=True, **options)


class TrainerTest(unittest.TestCase):
    def test_steps_are_the_bits_of_the_program(self):
        support.trained()
        with make("python") as trainer:
            records = list(trainer)
        self.assertEqual([r["step"] for r in records], [1, 2, 3, 4, 5, 6])
        self.assertEqual([(r["step"], r["loss"], r["grad_norm"]) for r in records], support.losses("program"))
        self.assertEqual(support.losses("python"), support.losses("program"))
        self.assertGreater(len(support.weights("program")), 20)
        self.assertEqual(support.weights("python"), support.weights("program"))
        self.assertEqual(trainer.result["step"], 6)

    def test_run_that_ends_early_is_continued_bit_for_bit(self):
        support.trained()
        with make("parts") as trainer:
            trainer.step(), trainer.step()
        self.assertTrue(trainer.result["checkpoint"].endswith("step-2"))
        with make("parts") as trainer:
            self.assertEqual(trainer.state["step"], 2)
            trainer.run()
        self.assertEqual(support.weights("parts"), support.weights("program"))

    def test_own_data_and_metric(self):
        seen = []
        run = make("own", {"training.steps": 4}, data=(r for r in RECORDS), validation=RECORDS[:20],
                   callbacks=[seen.append])
        with run as trainer:
            for record in trainer:
                answer = trainer.model.generate("1 plus", 4)
                trainer.log("answers", {"length": len(answer["tokens"])})
                self.assertGreater(record["loss"], 0)
        kinds = [r["kind"] for r in seen]
        self.assertEqual(kinds.count("step"), 4)
        own = [r for r in seen if r["kind"] == "evaluation" and r["name"] == "answers"]
        self.assertEqual([r["step"] for r in own], [1, 2, 3, 4])
        stored = (support.FOLDER / "own" / "metrics" / "evaluations.jsonl").read_text().splitlines()
        self.assertIn("answers", [json.loads(line)["name"] for line in stored])
        self.assertEqual(quench.callbacks.numbers(own[0]), {"answers/length": own[0]["values"]["length"]})

    def test_equal_data_is_the_file_of_the_program(self):
        path = support.FOLDER / "records.jsonl"
        path.write_text("".join(json.dumps({"text": r}) + "\n" for r in RECORDS))
        file = support.FOLDER / "records.json"
        file.write_text(json.dumps(support.config("of_file", data={"train": str(path)})))
        support.program("train", file, "--quiet", "--device", "cpu")
        make("of_records", data=RECORDS).run()
        self.assertEqual(support.losses("of_records"), support.losses("of_file"))

    def test_reward_of_a_function(self):
        prompts = [{"prompt": f"q{i}", "answer": i} for i in range(8)]
        keys = {"grpo.rewards": "function", "grpo.num_generations": 4, "grpo.max_completion_length": 4,
                "grpo.log_completions": 1}
        seen = []

        def reward(samples):
            seen.extend(samples)
            return [None if s["record"]["answer"] == 0 else len(s["completion"]) for s in samples]

        with make("rewarded", keys, steps=2, data=prompts, reward=reward) as trainer:
            records = list(trainer)
        self.assertEqual(len(seen), 2 * 2 * 4)  # steps, prompts, completions
        self.assertEqual(set(seen[0]), {"prompt", "completion", "record"})
        own = [len(s["completion"]) for s in seen[:8] if s["record"]["answer"] != 0]
        self.assertAlmostEqual(records[0]["objective"]["reward"], sum(own) / len(own), places=6)

        def fail(samples):
            raise ZeroDivisionError("no reward")

        with self.assertRaisesRegex(ZeroDivisionError, "no reward"):
            make("failing", keys, steps=2, data=prompts, reward=fail).run()
        with self.assertRaisesRegex(quench.Error, "one for each"):
            make("short", keys, steps=2, data=prompts, reward=lambda samples: [1.0]).run()
        with self.assertRaisesRegex(quench.Error, "expected a number"):
            make("texts", keys, steps=2, data=prompts, reward=lambda samples: ["a"] * len(samples)).run()
        with self.assertRaisesRegex(quench.Error, "Python module"):
            make("none", keys, steps=2, data=prompts)

    def test_callback_that_raises_leaves_the_run_between_steps(self):
        support.trained()

        def fail(record):
            if record["kind"] == "step" and record["step"] == 3:
                raise ValueError("of the callback")

        with self.assertRaisesRegex(ValueError, "of the callback"), make("raises", callbacks=[fail]) as trainer:
            trainer.run()
        self.assertEqual(trainer.result["step"], 3)
        make("raises").run()
        self.assertEqual(support.weights("raises"), support.weights("program"))

    def test_control_c_is_raised_after_the_step(self):
        def interrupt(record):
            if record["kind"] == "step" and record["step"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt), make("interrupted", callbacks=[interrupt]) as trainer:
            trainer.run()
        self.assertEqual(trainer.result["step"], 2)
        self.assertTrue(os.path.isdir(trainer.result["checkpoint"]))

    def test_callback_that_never_returns_ends_with_control_c(self):
        def wait(record):
            if record["kind"] == "step":
                threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                while True:
                    time.sleep(0.01)

        with self.assertRaises(KeyboardInterrupt), make("waits", callbacks=[wait]) as trainer:
            trainer.run()
        self.assertEqual(trainer.result["step"], 1)
        with make("waits") as trainer:
            self.assertEqual(trainer.state["step"], 1)

    def test_data_that_raises_leaves_nothing(self):
        def broken():
            yield "a"
            raise OSError("of the source")

        with self.assertRaisesRegex(OSError, "of the source"):
            make("broken", data=broken())
        self.assertEqual(list((support.FOLDER / "broken").rglob("*.jsonl")), [])

    def test_mistakes_are_named_before_anything_is_written(self):
        for overrides, options, text, code in [
            ({"training.stepz": 3}, {}, "training.stepz", "bad_config"),
            ({}, {"data": []}, "data: no records", "invalid_argument"),
            ({}, {"data": [3]}, "data[0]: int, expected a text or a mapping", "invalid_argument"),
            ({}, {"data": "file.txt"}, "files go into the config", "invalid_argument"),
            ({}, {"data": [{"text": object()}]}, "data[0]: Object of type object", "invalid_argument"),
        ]:
            with self.subTest(text), self.assertRaises(quench.Error) as caught:
                make("mistakes", overrides, **options)
            self.assertIn(text, str(caught.exception))
            self.assertEqual(caught.exception.code, code)
        self.assertEqual(list((support.FOLDER / "mistakes").rglob("*.jsonl")), [])

    def test_finished_run_steps_no_further(self):
        with make("finished") as trainer:
            trainer.run()
            self.assertIsNone(trainer.end()["exported"] or None)
            with self.assertRaises(quench.Error):
                trainer.step()

    def test_model_in_training_computes_and_is_not_saved(self):
        trainer = make("model")
        before = np.asarray(trainer.model.forward([1, 2, 3])).copy()
        trainer.step()
        after = np.asarray(trainer.model.forward([1, 2, 3]))
        self.assertFalse(np.array_equal(before, after))
        with self.assertRaisesRegex(quench.Error, "in training"):
            trainer.model.save(str(support.FOLDER / "never"))
        model = trainer.model
        trainer.end()
        del trainer
        np.testing.assert_array_equal(np.asarray(model.forward([1, 2, 3])), after)  # keeps what it needs

    def test_config_file_and_named_config_are_taken(self):
        file = support.FOLDER / "named.json"
        file.write_text(json.dumps(support.config("named")))
        trainer = quench.Trainer(file, {"training.steps": 2}, device="cpu", quiet=True)
        self.assertEqual(trainer.config["training"]["steps"], 2)
        self.assertEqual(trainer.run()["step"], 2)
        with self.assertRaisesRegex(quench.Error, "shakespeare_chat"):
            quench.Trainer("shakespeare_chat")


if __name__ == "__main__":
    unittest.main()
