// quench bench: speed of generation at several batch sizes.

#include <chrono>
#include <cstdio>
#include <optional>

#include "apps/options/generate_options.h"
#include "apps/options/reader_options.h"
#include "apps/standard_output.h"
#include "apps/verbs.h"
#include "core/device/determinism.h"
#include "core/number/random.h"
#include "core/system/printable.h"
#include "engine/engine.h"
#include "nn/attention/paged_keys.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchOptions {
  GenerateOptions model;
  std::vector<std::int64_t> batch_sizes = {1, 8, 64};
  std::int64_t prompt_tokens = 128, new_tokens = 128, repeat = 1;
};

struct Rates {
  double prompt_seconds = 0, decode_seconds = 0;  // to the first token of all sequences; from there to the last
};

// Random prompts; all sequences have the same lengths.
Rates measure(Engine& engine, std::int64_t batch, const BenchOptions& o, std::int64_t vocabulary, std::uint64_t seed) {
  std::int64_t begun = 0;
  const Clock::time_point start = Clock::now();
  Clock::time_point decoding = start;
  std::string failure;
  for (std::int64_t i = 0; i < batch; ++i) {
    EngineRequest request{.max_new_tokens = o.new_tokens};
    for (std::int64_t j = 0; j < o.prompt_tokens; ++j)
      request.prompt.push_back(static_cast<std::int32_t>(
          random_word({seed, hash64("bench"), static_cast<std::uint64_t>(i)}, static_cast<std::uint64_t>(j)) %
          static_cast<std::uint64_t>(vocabulary)));
    request.on_token = [&, first = true](const SampledToken&) mutable {
      if (std::exchange(first, false) && ++begun == batch) decoding = Clock::now();
      return true;
    };
    request.on_end = [&](const EngineResult& result) {
      if (result.reason == EndReason::failed) failure = result.error;
    };
    (void)engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  QUENCH_CHECK_AS(ErrorCode::failed, failure.empty(), "{}", failure);
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  return {seconds(start, decoding), seconds(decoding, Clock::now())};
}

void run(const BenchOptions& o) {
  set_batch_invariant(o.model.deterministic);
  const Model loaded = open_generating_model(o.model, {});
  const nn::CausalLm& model = loaded.model();
  print_unchanged();
  Json all = Json::array();
  if (!o.model.json)
    std::printf("%8s %16s %16s %18s %16s\n", "batch", "prompt tok/s", "first token ms", "generated tok/s",
                "per token ms");
  for (const std::int64_t batch : o.batch_sizes) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, batch >= 1 && batch <= 4096, "--batch-sizes: {}, expected 1 to 4096", batch);
    const std::int64_t tokens = o.prompt_tokens + o.new_tokens;
    Engine engine(model, {.max_sequences = batch,
                          .cache_tokens = batch * (tokens + nn::kPageTokens),
                          .prefill_tokens = batch * o.prompt_tokens,
                          .share_prefixes = false});
    (void)measure(engine, batch, o, model.config().vocab_size, 0);  // loads kernels
    std::optional<Rates> best;
    for (std::int64_t i = 0; i < o.repeat; ++i) {
      const Rates rates = measure(engine, batch, o, model.config().vocab_size, static_cast<std::uint64_t>(i) + 1);
      if (!best || rates.decode_seconds < best->decode_seconds) best = rates;
    }
    const double prompt_rate = static_cast<double>(batch * o.prompt_tokens) / best->prompt_seconds;
    const double step = best->decode_seconds / static_cast<double>(o.new_tokens - 1);
    const double rate = static_cast<double>(batch) / step;
    if (o.model.json) {
      Json row = Json::object();
      row.set("batch_size", batch);
      row.set("prompt_tokens_per_second", prompt_rate);
      row.set("first_token_seconds", best->prompt_seconds);
      row.set("tokens_per_second", rate);
      row.set("seconds_per_token", step);
      all.push_back(std::move(row));
    } else {
      std::printf("%8lld %16.1f %16.1f %18.1f %16.3f\n", static_cast<long long>(batch), prompt_rate,
                  best->prompt_seconds * 1e3, rate, step * 1e3);
      std::fflush(stdout);
    }
  }
  if (o.model.json) std::printf("%s\n", all.dump().c_str());
}

}  // namespace

void add_bench_verb(const Command& app) {
  auto o = std::make_shared<BenchOptions>();
  const Command verb = app.add_command("bench", "Measure the speed of generation");
  verb.footer(
      "Example: quench bench --model runs/demo/export --batch-sizes 1,8,64\n"
      "Random prompts, greedy, to the full length. The first token's time is that of all prompts together.");
  verb.add_option("--model", o->model.model, "Model folder, GGUF file, checkpoint or run folder")
      .takes_hub_name()
      .required();
  verb.add_option("--adapter", o->model.adapter, "PEFT adapter folder").takes_hub_name();
  verb.add_option("--batch-sizes", o->batch_sizes, "Sequences side by side, separated by commas").show_default();
  verb.add_option("--prompt-tokens", o->prompt_tokens, "Tokens of a prompt").between(1, 1 << 24).show_default();
  verb.add_option("--new-tokens", o->new_tokens, "Tokens generated after it").between(2, 1 << 24).show_default();
  verb.add_option("--repeat", o->repeat, "Runs, of which the fastest is shown").between(1, 1000).show_default();
  verb.add_option("--device", o->model.device, "auto, cpu, cuda or cuda:N").show_default();
  verb.add_option("--memory-limit", o->model.memory_limit, kMemoryLimitHelp);
  verb.add_option("--dtype", o->model.dtype, "auto (as stored), f32 or bf16").show_default();
  verb.add_option("--kv-cache", o->model.kv_cache, "Elements of the KV cache: " + kv_cache_names()).show_default();
  verb.add_option("--threads", o->model.threads, "CPU threads; 0: all").show_default();
  verb.add_flag("--deterministic", o->model.deterministic,
                "Logits of a token do not depend on other sequences, bit for bit; slower, quantized weights most");
  verb.add_flag("--json", o->model.json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
