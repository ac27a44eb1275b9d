"""quench.Model and quench.Trainer on a GPU: the program's bits, arrays of other libraries, forks. Skipped without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import unittest

import numpy as np
import quench
import support


def gpus() -> bool:
    done = subprocess.run([support.PROGRAM, "doctor"], capture_output=True, text=True, timeout=120)
    return done.returncode == 0 and "no GPU" not in done.stdout


def torch():
    try:
        import torch as module
    except ImportError:
        raise unittest.SkipTest("PyTorch is not installed")
    return module


@unittest.skipUnless(gpus(), "no GPU")
class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = quench.Model.open(support.trained(), device="cuda")
        cls.tokens = cls.model.tokenizer.encode("10 plus 11 is")

    def test_numbers_are_those_of_the_processor(self):
        self.assertEqual(self.model.device, "cuda:0")
        expected = quench.Model.open(support.trained(), device="cpu")
        np.testing.assert_allclose(np.asarray(self.model.logprobs(self.tokens)),
                                   np.asarray(expected.logprobs(self.tokens)), atol=2e-4)
        pairs = [(self.tokens, self.model.tokenizer.encode(" 21", False))]
        np.testing.assert_allclose(self.model.score(pairs)[0][0], expected.score(pairs)[0][0], atol=1e-3)

    def test_logits_stay_on_the_gpu_and_are_read_by_pytorch(self):
        logits = torch().from_dlpack(self.model.forward(self.tokens))
        self.assertEqual((logits.device.type, tuple(logits.shape)), ("cuda", (len(self.tokens), 259)))
        first = logits.cpu().numpy().copy()
        expected = quench.Model.open(support.trained(), device="cpu").forward(self.tokens)
        np.testing.assert_allclose(first, np.asarray(expected), atol=1e-3)
        self.model.forward(list(reversed(self.tokens)))  # takes no memory of the array before it
        np.testing.assert_array_equal(logits.cpu().numpy(), first)

    def test_tokens_on_the_gpu_are_refused_by_name(self):
        tokens = torch().tensor(self.tokens, device="cuda")
        with self.assertRaisesRegex(quench.Error, "expected the CPU"):
            self.model.forward(tokens)
        self.assertEqual(len(np.asarray(self.model.logprobs(self.tokens.copy()))), len(self.tokens) - 1)

    def test_steps_are_the_bits_of_the_program(self):
        path = support.FOLDER / "gpu-program.json"
        path.write_text(json.dumps(support.config("gpu-program")))
        support.program("train", path, "--quiet", "--device", "cuda")
        with quench.Trainer(support.config("gpu-python"), device="cuda", quiet=True) as trainer:
            for record in trainer:
                self.assertGreater(record["loss"], 0)
        self.assertEqual(support.losses("gpu-python"), support.losses("gpu-program"))
        self.assertGreater(len(support.weights("gpu-program")), 20)
        self.assertEqual(support.weights("gpu-python"), support.weights("gpu-program"))

    def test_generation_is_that_of_the_program(self):
        ours = self.model.generate("10 plus", 12)["text"]
        done = support.program("generate", "--model", support.trained(), "--prompt", "10 plus", "--max-new-tokens", "12",
                               "--temperature", "0", "--device", "cuda")
        self.assertIn(ours, done.stdout)

    def test_control_c_is_raised_after_the_step_and_the_run_is_saved(self):
        def interrupt(record):
            if record["kind"] == "step" and record["step"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

        options = {"device": "cuda", "quiet": True}
        with self.assertRaises(KeyboardInterrupt):
            with quench.Trainer(support.config("gpu-stop", 50), callbacks=[interrupt], **options) as trainer:
                trainer.run()
        self.assertEqual(trainer.result["step"], 2)
        with quench.Trainer(support.config("gpu-stop", 50), **options) as trainer:
            self.assertEqual(trainer.state["step"], 2)
            trainer.step()

    def test_forked_process_is_refused_and_its_parent_goes_on(self):
        before = np.asarray(self.model.logprobs(self.tokens))
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
        np.testing.assert_array_equal(np.asarray(self.model.logprobs(self.tokens)), before)


if __name__ == "__main__":
    unittest.main()
