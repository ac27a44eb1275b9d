"""Quench: pre-training and fine-tuning of Llama-family language models in low precision.

``Model`` opens, runs, quantizes and saves models; ``Trainer`` trains them as a config says. Arrays come and go by
DLPack and the buffer protocol: NumPy, PyTorch and JAX read them, and none of them is imported. Failures raise
``Error`` with the program's message.
"""

try:
    from ._quench import Error, Model, Tokenizer, __version__, set_log_level
except ModuleNotFoundError as error:
    if error.name != "quench._quench":
        raise
    from ._wrong_python import message

    raise ImportError(message()) from None
from .trainer import Trainer

__all__ = ["Error", "Model", "Tokenizer", "Trainer", "__version__", "set_log_level"]
