// Tokens of a pass, and what is saved of them.

#include "train/check/checks.h"

namespace quench {
namespace {

// Kernels count tokens per pass in 32 bits.
void check_tokens(Checker& checker) {
  if (!checker.usable({"training.micro_batch_size", "data.seq_len"})) return;
  const std::int64_t rows = checker.config().training.micro_batch_size, length = checker.config().data.seq_len;
  if (rows * length >= std::int64_t{1} << 31)
    checker.report(
        "training.micro_batch_size",
        "{} sequences of {} tokens are {} tokens in one pass; fewer than 2^31 are possible, and far fewer fit "
        "any device",
        rows, length, rows * length);
}

void check_saved(Checker& checker) {
  using enum TrainingSection::ActivationCheckpoint;
  const TrainingSection& training = checker.config().training;
  if (!checker.usable({"training.offload_layers", "training.recompute_mlp_layers", "training.activation_checkpoint",
                       "training.keep_attention_layers"}))
    return;
  if (training.keep_attention_layers > 0 && training.activation_checkpoint != full)
    checker.report("training.keep_attention_layers",
                   "{}, but attention is computed again under training.activation_checkpoint \"full\" alone; set that, "
                   "or keep_attention_layers to 0",
                   training.keep_attention_layers);
  if (training.recompute_mlp_layers > 0 && training.activation_checkpoint == full)
    checker.report("training.recompute_mlp_layers",
                   "{}, but training.activation_checkpoint \"full\" recomputes whole layers; set recompute_mlp_layers "
                   "to 0, or activation_checkpoint to \"selective\"",
                   training.recompute_mlp_layers);
  if (training.recompute_mlp_layers > 0 && training.activation_checkpoint == none)
    checker.report("training.recompute_mlp_layers",
                   "{}, but training.activation_checkpoint \"none\" recomputes nothing; set activation_checkpoint to "
                   "\"selective\", which costs less",
                   training.recompute_mlp_layers);
}

void check_tiles(Checker& checker) {
  constexpr std::int64_t kTileMultiple = 128;  // rows of GEMM tiles and of blocks of float8 scales
  const TrainingSection& training = checker.config().training;
  if (training.mlp_tile_tokens == 0 ||
      !checker.usable({"training.mlp_tile_tokens", "training.offload_layers", "training.recompute_mlp_layers",
                       "training.activation_checkpoint"}))
    return;
  const auto report = [&](std::string_view reason) {
    checker.report("training.mlp_tile_tokens", "{}, but {}", training.mlp_tile_tokens, reason);
  };
  if (training.mlp_tile_tokens % kTileMultiple != 0)
    checker.report("training.mlp_tile_tokens", "{} is not a multiple of {}; nearest: {}", training.mlp_tile_tokens,
                   kTileMultiple, nearest_multiples(training.mlp_tile_tokens, kTileMultiple));
  if (training.recompute_mlp_layers > 0)
    report("a tile is recomputed as a whole; set training.recompute_mlp_layers to 0");
  if (training.offload_layers > 0 && training.activation_checkpoint != TrainingSection::ActivationCheckpoint::full)
    report(
        "tiles save no SwiGLU input for training.offload_layers; set activation_checkpoint to \"full\", whose layer "
        "inputs are offloaded, or offload_layers to 0");
  if (checker.usable({"parallel.expert"}) && checker.config().parallel.expert > 1)
    report("experts of parallel.expert exchange the rows of whole micro-batches; set one of the two to its default");
}

}  // namespace

void check_activations(Checker& checker) {
  check_tokens(checker);
  check_saved(checker);
  check_tiles(checker);
}

}  // namespace quench
